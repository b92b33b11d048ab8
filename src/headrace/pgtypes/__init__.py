"""Postgres's types as Arrow's: one file per family; `registry` says which conversion a column has."""
