"""Headrace: change data capture from Postgres, decoded column-wise.

Importing this package loads the words only: no driver, no Arrow, no Spark.
"""

from .errors import HeadraceError
from .lsn import Lsn
from .schema import ReplicatedTableSchema, TableName, TableSchema

__all__ = ["HeadraceError", "Lsn", "ReplicatedTableSchema", "TableName", "TableSchema"]
__version__ = "0.1.0.dev0"
