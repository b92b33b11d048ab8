"""What an operator asks of a pipeline from another process: kept in the store until the pipeline has done it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

__all__ = ["RequestKind", "RequestStore", "TableRequest"]


class RequestKind(StrEnum):
    """Copy the table again; take it out of Errored and try again; start it over from Init."""

    RESYNC = "resync"
    ROLLBACK = "rollback"
    ROLLBACK_TO_INIT = "rollback_to_init"


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A wish for one table, by its OID: names may change before it is read."""

    kind: RequestKind
    table_id: int


class RequestStore(Protocol):
    """At most one request per table. One is read, carried out and only then withdrawn: a crash between loses none."""

    def ask(self, request: TableRequest) -> None:
        """Keep a request. It replaces an earlier one of the table: the operator knows more now."""

    def get_requests(self) -> Sequence[TableRequest]:
        """Those not withdrawn, by table."""

    def withdraw_request(self, request: TableRequest) -> bool:
        """Forget a request that was carried out, or cannot be. False if another stands in its place, or none."""
