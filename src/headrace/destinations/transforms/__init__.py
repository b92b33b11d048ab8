"""Between the pipeline and a destination: columns left out, masked or computed, rows filtered, in copy and stream."""

from .destination import Transformed
from .hook import TransformTable
from .wrapping import transformed

__all__ = ["TransformTable", "Transformed", "transformed"]
