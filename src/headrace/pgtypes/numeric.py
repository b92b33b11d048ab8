"""numeric(p, s) -> decimal128(p, s) where Arrow has it (p <= 38, 0 <= s <= p); any other numeric -> Postgres's text.

NaN and the infinities have no decimal: they are rejected from a decimal column and kept as text in a string column. So
is a value that a configured decimal would have to round or cannot hold; trailing zeros alone are no reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from .contract import Converted
from .rejection import cast_texts, reject
from .text import TextConversion

__all__ = ["DecimalConversion", "numeric_conversion"]

_MAX_PRECISION = 38


def numeric_conversion(typmod: int, without_scale: tuple[int, int] | None) -> DecimalConversion | TextConversion:
    """The conversion for a numeric column. A scale above the precision or below zero (Postgres 15+) stays text."""
    shape = _precision_and_scale(typmod) if typmod >= 0 else without_scale
    if shape is not None and shape[0] <= _MAX_PRECISION and 0 <= shape[1] <= shape[0]:
        return DecimalConversion(*shape)
    return TextConversion()


def _precision_and_scale(typmod: int) -> tuple[int, int]:
    """As numeric.c packs them behind a 4-byte header: 16 bits of precision, 11 of scale, the scale signed."""
    packed = typmod - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


@dataclass(frozen=True, slots=True)
class DecimalConversion:
    precision: int
    scale: int

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.decimal128(self.precision, self.scale)

    def from_text(self, texts: pa.StringArray) -> Converted:
        try:
            return Converted(texts.cast(self.arrow_type))
        except pa.ArrowInvalid:
            return self._set_aside(texts)

    def _set_aside(self, texts: pa.StringArray) -> Converted:
        """Reject what does not fit, and cast the rest."""
        trimmed = self._without_trailing_zeros(texts)
        bad = pc.fill_null(self._unrepresentable(trimmed), False)
        values = cast_texts(pc.if_else(bad, pa.scalar(None, pa.string()), trimmed), self.arrow_type, "numeric")
        return reject(values, bad.to_numpy(zero_copy_only=False), texts.filter(bad))

    def _without_trailing_zeros(self, texts: pa.StringArray) -> pa.StringArray:
        pattern, kept = (rf"(\.\d{{0,{self.scale}}})0*$", r"\1") if self.scale else (r"\.0*$", "")
        return pc.replace_substring_regex(texts, pattern, kept)

    def _unrepresentable(self, texts: pa.StringArray) -> pa.BooleanArray:
        special = pc.match_substring_regex(texts, r"^(NaN|-?Infinity)$")
        number = pc.match_substring_regex(texts, r"^-?\d+(\.\d*)?$")
        fits = pc.match_substring_regex(texts, rf"^-?0*\d{{0,{self.precision - self.scale}}}(\.\d{{0,{self.scale}}})?$")
        return pc.or_(special, pc.and_not(number, fits))
