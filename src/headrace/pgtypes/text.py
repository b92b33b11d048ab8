"""Types whose Arrow value is Postgres's own text, byte for byte: the text family, and all that Arrow has no type for.

Where the text can be derived from the binary form away from the server, the conversion has a printer for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from ..errors import SourceUnsupported
from .contract import Converted
from .layout import dense_apply, malformed

__all__ = ["TextConversion", "print_text"]


def print_text(values: pa.BinaryArray) -> pa.StringArray:
    """The binary form of text, names, enums, json and xml is the text itself."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise malformed("text") from None


@dataclass(frozen=True, slots=True)
class TextConversion:
    """`printer` turns binary forms (no NULLs among them) into Postgres's text; None where only the server can."""

    type_name: str
    printer: Callable[[pa.BinaryArray], pa.StringArray] | None = print_text

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    @property
    def supports_binary(self) -> bool:
        return self.printer is not None

    def from_text(self, texts: pa.StringArray) -> Converted:
        return Converted(texts)

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        return Converted(self.text_from_binary(values))

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        if self.printer is None:
            msg = f"values of type {self.type_name} cannot be read in the binary form"
            raise SourceUnsupported(msg, hint="switch the binary option off for this pipeline: text serves every type")
        if self.printer is print_text:
            return print_text(values)
        return dense_apply(self.printer, values)
