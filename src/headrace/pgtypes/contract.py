"""The promise of a type family: Postgres's texts of one column in, one Arrow array out.

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

    def from_text(self, texts: pa.StringArray) -> Converted:
        """Convert Postgres's text form (`COPY`, pgoutput 't'). A value that does not fit is rejected, never guessed.

        Text that this type's output function cannot have produced raises ProtocolError.
        """
