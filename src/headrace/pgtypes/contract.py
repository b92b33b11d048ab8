"""The promise of a type family: Postgres's bytes of one column in, one Arrow array out.

A conversion works on whole columns. The stream and the initial copy use the same conversions, so that one value gives
one Arrow value whichever way it came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

__all__ = ["Conversion", "Converted", "Rejected"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Values the Arrow type cannot hold: their positions in the column and Postgres's text of each."""

    positions: pa.Int64Array
    texts: pa.StringArray


@dataclass(frozen=True, slots=True)
class Converted:
    """The column, NULL where the source was NULL or the value was rejected. `rejected` is None when nothing was."""

    values: pa.Array
    rejected: Rejected | None = None


class Conversion(Protocol):
    """How the values of one Postgres type become Arrow. Stateless, picklable, shared between threads."""

    @property
    def arrow_type(self) -> pa.DataType: ...

    @property
    def supports_binary(self) -> bool:
        """Whether the binary form can be read; where it is False, ask the server for text."""

    def from_text(self, texts: pa.StringArray) -> Converted:
        """Convert Postgres's text form (`COPY`, pgoutput 't'). A value that does not fit is rejected, never guessed.

        Text that this type's output function cannot have produced raises ProtocolError.
        """

    def from_binary(self, values: pa.BinaryArray) -> Converted:
        """Convert Postgres's binary form (pgoutput 'b'): equal to `from_text` of the same value.

        Bytes that this type's send function cannot have produced raise ProtocolError; a type whose binary form cannot
        be read away from the server raises SourceUnsupported.
        """

    def text_from_binary(self, values: pa.BinaryArray) -> pa.StringArray:
        """Print the binary form as the type's output function does: what a rejected value is reported with."""
