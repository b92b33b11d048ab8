"""Headrace: change data capture from Postgres, decoded column-wise on Spark.

Importing this package loads the words only: no driver, no Arrow, no Spark. The rest is loaded when it is first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import HeadraceError
from .lsn import Lsn
from .schema import ReplicatedTableSchema, TableName, TableSchema

if TYPE_CHECKING:
    from .config.load import load_pipeline_config
    from .config.pipeline import PipelineConfig
    from .pipeline import Pipeline

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
    "Pipeline": "headrace.pipeline",
    "PipelineConfig": "headrace.config.pipeline",
    "load_pipeline_config": "headrace.config.load",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_LOADED_LATER[name]), name)
