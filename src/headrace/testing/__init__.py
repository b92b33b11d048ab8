"""The test kit, public: real servers, scripted faults and (later) the conformance suites a third party can run."""

from .binaries import DEFAULT_VERSION, VERSIONS
from .postgres import PostgresServer

__all__ = ["DEFAULT_VERSION", "VERSIONS", "PostgresServer"]
