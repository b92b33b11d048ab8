"""smallint, integer, bigint -> int16, int32, int64; oid, which is unsigned, -> int64."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from .contract import Converted
from .layout import dense_apply, fixed_width
from .rejection import cast_texts

__all__ = ["IntegerConversion"]


@dataclass(frozen=True, slots=True)
class IntegerConversion:
    """`wire` is the number's binary form in numpy's words, `native` the Arrow type's."""

    type_name: str
    wire: str
    native: str

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.type_for_alias(self.native)

    @property
    def supports_binary(self) -> bool:
        return True

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(cast_texts(texts, self.arrow_type, self.type_name))

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        return Converted(dense_apply(self._numbers, values))

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        return self.from_binary(values).values.cast(pa.string())

    def _numbers(self, values: pa.BinaryArray) -> pa.Array:
        return pa.array(fixed_width(values, self.wire, self.type_name).astype(self.native))
