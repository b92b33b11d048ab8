"""Headrace: change data capture from Postgres, decoded column-wise on Spark.

Importing this package loads nothing but itself: each name is loaded when it is first used.
"""

from importlib import import_module

# As `typing` has it, whose import the start of the command need not wait for.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .config.load import load_pipeline_config
    from .config.pipeline import PipelineConfig
    from .errors import HeadraceError
    from .lsn import Lsn
    from .pipeline import Pipeline
    from .schema import ReplicatedTableSchema, TableName, TableSchema

__all__ = [
    "HeadraceError",
    "Lsn",
    "Pipeline",
    "PipelineConfig",
    "ReplicatedTableSchema",
    "TableName",
    "TableSchema",
    "load_pipeline_config",
]
__version__ = "0.1.0.dev0"

_LOADED_LATER = {
    "HeadraceError": "headrace.errors",
    "Lsn": "headrace.lsn",
    "Pipeline": "headrace.pipeline",
    "PipelineConfig": "headrace.config.pipeline",
    "ReplicatedTableSchema": "headrace.schema",
    "TableName": "headrace.schema",
    "TableSchema": "headrace.schema",
    "load_pipeline_config": "headrace.config.load",
}


def __getattr__(name: str) -> object:
    if name not in _LOADED_LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_LOADED_LATER[name]), name)
