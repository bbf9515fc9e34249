"""The ledger and the dead-letter table: their schemas, and how they are read. Also counts and lists the files of any table."""
