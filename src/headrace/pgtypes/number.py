"""smallint, integer, bigint -> int16, int32, int64; oid, which is unsigned, -> int64.

real, double precision -> float32, float64; NaN and the infinities are values of the Arrow types too.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from .contract import Converted
from .rejection import cast_texts

__all__ = ["NumberConversion"]


@dataclass(frozen=True, slots=True)
class NumberConversion:
    """`native` names the Arrow type."""

    type_name: str
    native: str

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.type_for_alias(self.native)

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(cast_texts(texts, self.arrow_type, self.type_name))
