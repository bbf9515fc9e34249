"""Iceberg commits that Spark makes: appends of staged rows, merges of changes, truncations."""
