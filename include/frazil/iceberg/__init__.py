"""The edge to Iceberg, and the only room that imports PyIceberg: catalog, tables, data files, positioned commits.

`catalog/` opens tables, `commit/` moves marks and rows together (begin with `commit.py` and `summary_state.py`), `files/` writes data
files, `schema/` creates and changes columns, `ledger/` reads ledger and dead letters, `patches/` mends PyIceberg.

All functions that use a catalog or a storage raise Retryable if it is not available now, and Terminal if a property or a
summary of a table is not readable. Docstrings don't repeat this.
"""
