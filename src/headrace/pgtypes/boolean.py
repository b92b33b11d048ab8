"""boolean -> bool."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from .contract import Converted
from .layout import dense_apply, fixed_width, malformed

__all__ = ["BooleanConversion"]


@dataclass(frozen=True, slots=True)
class BooleanConversion:
    """`t` and `f`; one byte in the binary form."""

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.bool_()

    @property
    def supports_binary(self) -> bool:
        return True

    def from_text(self, texts: pa.StringArray) -> Converted:
        true = pc.equal(texts, "t")
        if pc.any(pc.not_equal(texts.filter(pc.invert(true)), "f")).as_py():
            raise malformed("boolean")
        return Converted(true)

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        return Converted(dense_apply(_truth, values))

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        return pc.if_else(self.from_binary(values).values, "t", "f")


def _truth(values: pa.BinaryArray) -> pa.BooleanArray:
    return pa.array(fixed_width(values, "u1", "boolean") != 0)
