"""The demo: a Postgres of its own, a small shop with live traffic, a pipeline to Iceberg, and the proof of equality."""
