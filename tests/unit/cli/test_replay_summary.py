"""What `headrace replay` says it has done."""

from __future__ import annotations

import pytest

from headrace.cli.replay import _positions
from headrace.lsn import Lsn
from headrace.schema import TableName

A, B = (TableName("public", name) for name in ("a", "b"))


@pytest.mark.parametrize(
    ("reached", "said"),
    [
        ({}, ""),
        ({A: None}, ""),
        ({A: Lsn(0x10), B: Lsn(0x10)}, " up to 0/10"),
        ({A: Lsn(0x10), B: None}, " up to 0/10, and no changes of 1 table"),
        ({A: Lsn(0x20), B: Lsn(0x10)}, ", each table up to its own position: 0/10 (public.b) to 0/20 (public.a)"),
    ],
)
def test_positions(reached: dict[TableName, Lsn | None], said: str) -> None:
    assert _positions(reached) == said
