"""Types whose Arrow value is Postgres's own text, byte for byte: the text family, and what Arrow has no type for."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from .contract import Converted

__all__ = ["TextConversion"]


@dataclass(frozen=True, slots=True)
class TextConversion:
    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(texts)
