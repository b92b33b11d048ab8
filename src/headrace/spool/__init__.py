"""The spool: raw WAL between Postgres and Spark, in self-contained Arrow segments."""

from .name import SegmentName
from .segment import SegmentIndex, TableIndex, relation_digest
from .spool import Segment, Spool, SpoolPosition

__all__ = ["Segment", "SegmentIndex", "SegmentName", "Spool", "SpoolPosition", "TableIndex", "relation_digest"]
