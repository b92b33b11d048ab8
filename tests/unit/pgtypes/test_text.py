"""Postgres's text, kept."""

from __future__ import annotations

import pyarrow as pa

from headrace.pgtypes.text import TextConversion

TEXTS = pa.array(["", "NULL", "\\N", 'a"b', "a\r\nb", "😀", None])


def test_text_is_handed_on_as_it_is() -> None:
    conversion = TextConversion()
    assert conversion.from_text(TEXTS).values is TEXTS
    assert conversion.arrow_type == pa.string()
