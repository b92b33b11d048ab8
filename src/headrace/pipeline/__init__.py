"""A pipeline: from a publication to a destination."""

from .pipeline import Pipeline
from .status import PipelineState, PipelineStatus, TableStatus

__all__ = ["Pipeline", "PipelineState", "PipelineStatus", "TableStatus"]
