"""real, double precision -> float32, float64. NaN and the infinities are values of the Arrow types too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .contract import Converted
from .float_printing import print_floats
from .layout import dense_apply, fixed_width
from .rejection import cast_texts

__all__ = ["FloatConversion"]


@dataclass(frozen=True, slots=True)
class FloatConversion:
    """`wire` is the binary form in numpy's words; from 10^`precision` on, Postgres prints an exponent."""

    type_name: str
    wire: str
    native: str
    precision: int

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.type_for_alias(self.native)

    @property
    def supports_binary(self) -> bool:
        return True

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(cast_texts(texts, self.arrow_type, self.type_name))

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        return Converted(dense_apply(lambda dense: pa.array(self._numbers(dense)), values))

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        return dense_apply(lambda dense: print_floats(self._numbers(dense), self.precision), values)

    def _numbers(self, values: pa.BinaryArray) -> npt.NDArray[Any]:
        numbers = fixed_width(values, self.wire, self.type_name).astype(self.native)
        # A NaN may carry a sign and a payload, which its text does not show.
        numbers[np.isnan(numbers)] = np.nan
        return numbers
