"""What a server of a given version can do: one property per feature, so that no other file compares version numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from ..errors import SourceUnsupported

__all__ = ["NEWEST", "OLDEST", "ServerVersion"]

OLDEST = 14
NEWEST = 18


@dataclass(frozen=True, slots=True, order=True)
class ServerVersion:
    """`server_version_num`, as in 170011."""

    number: int

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> ServerVersion:
        """The version the server announced at login; costs no query and works on replication connections."""
        return cls(connection.info.server_version)

    def __str__(self) -> str:
        return f"{self.major}.{self.number % 10_000}"

    @property
    def major(self) -> int:
        return self.number // 10_000

    @property
    def max_proto_version(self) -> int:
        """The highest pgoutput `proto_version`: 2 streams big transactions, 3 adds two-phase, 4 parallel apply."""
        return 2 if self.major < 15 else 3 if self.major < 16 else 4

    @property
    def streaming(self) -> str:
        """The best value of pgoutput's `streaming` option; `parallel` tells of an abort where it happened."""
        return "parallel" if self.major >= 16 else "on"

    @property
    def column_lists(self) -> bool:
        return self.major >= 15

    @property
    def row_filters(self) -> bool:
        return self.major >= 15

    @property
    def tables_in_schema(self) -> bool:
        return self.major >= 15

    @property
    def decoding_on_standby(self) -> bool:
        return self.major >= 16

    @property
    def failover_slots(self) -> bool:
        return self.major >= 17

    @property
    def publish_generated_columns(self) -> bool:
        return self.major >= 18

    def require(self, supported: bool, feature: str, since: int) -> None:
        """Raise SourceUnsupported, naming both versions, unless `supported`."""
        if not supported:
            msg = f"{feature} needs Postgres {since} or newer; this server is {self}"
            raise SourceUnsupported(msg)
