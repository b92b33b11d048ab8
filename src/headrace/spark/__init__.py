"""Spark: the session, and the jobs that read, decode and copy."""
