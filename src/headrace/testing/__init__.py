"""The test kit, public: real servers, scripted faults and (later) the conformance suites a third party can run."""

from .binaries import DEFAULT_VERSION, VERSIONS
from .postgres import PostgresServer
from .proxy import TcpProxy
from .s3 import S3Server

__all__ = ["DEFAULT_VERSION", "VERSIONS", "PostgresServer", "S3Server", "TcpProxy"]
