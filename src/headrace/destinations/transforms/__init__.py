"""Between the pipeline and a destination: columns left out or masked, rows filtered, in the copy and in the stream."""

from .destination import Transformed

__all__ = ["Transformed"]
