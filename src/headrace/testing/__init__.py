"""The test kit, public: real servers, scripted faults, and conformance suites that a third party can run.

The suites need pytest and are imported from their own modules (`testing.store_suite`).
"""

from .binaries import DEFAULT_VERSION, VERSIONS
from .postgres import PostgresServer
from .proxy import TcpProxy
from .s3 import S3Server

__all__ = ["DEFAULT_VERSION", "VERSIONS", "PostgresServer", "S3Server", "TcpProxy"]
