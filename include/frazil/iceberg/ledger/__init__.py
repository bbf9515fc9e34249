"""The ledger and the dead-letter table: their shapes, how they are read, and what a table consists of."""
