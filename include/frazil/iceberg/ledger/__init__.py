"""The ledger and the dead-letter table: their schemas and how they are read; also an inspection of a table's files."""
