"""The edge to Iceberg, and the only room that imports PyIceberg: catalog, tables, data files, positioned commits.

`catalog/` opens tables, `commit/` moves marks and rows together (begin with `commit.py` and `summary_state.py`), `files/` writes data
files, `schema/` makes and changes columns, `ledger/` reads ledger and dead letters, `patches/` mends PyIceberg.

Whatever asks a catalog or a storage raises Retryable where that is not available now, and Terminal where a property
or a summary of a table is not readable; docstrings don't say so again.
"""
