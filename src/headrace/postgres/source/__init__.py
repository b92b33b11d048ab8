"""What is put into the source so that DDL is seen as it happens: a schema of its own, functions, event triggers."""
