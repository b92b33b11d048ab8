"""Schema changes: from what a table looks like and what its source looks like now to one alteration of it.

Columns are known by attnum. `planning` decides, and a table does it within a commit; the rest is in between.
"""
