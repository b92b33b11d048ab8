"""A change log in Parquet files: lossless, each change once, to be read by anything and replayed elsewhere."""

from .destination import ParquetDestination
from .reader import LoggedTable, ParquetLog, open_log

__all__ = ["LoggedTable", "ParquetDestination", "ParquetLog", "open_log"]
