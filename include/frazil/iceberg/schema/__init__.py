"""Columns: from a pipeline file to a table, how a table follows its records, and tables of the Connect sink."""
