"""boolean -> bool."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from .contract import Converted
from .layout import malformed

__all__ = ["BooleanConversion"]


@dataclass(frozen=True, slots=True)
class BooleanConversion:
    """`t` and `f`."""

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.bool_()

    def from_text(self, texts: pa.StringArray) -> Converted:
        true = pc.equal(texts, "t")
        if pc.any(pc.not_equal(texts.filter(pc.invert(true)), "f")).as_py():
            raise malformed("boolean")
        return Converted(true)
