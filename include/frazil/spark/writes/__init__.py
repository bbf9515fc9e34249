"""Iceberg commits that Spark itself makes: appends of staged rows, merges of changes, truncations."""
