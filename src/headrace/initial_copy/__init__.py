"""The initial copy of a table: a plan of ranges, and one range read to Arrow. Nothing here knows who runs the plan."""
