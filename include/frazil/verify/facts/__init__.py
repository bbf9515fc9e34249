"""What the ledger and the snapshots say, as plain data, and what a check found."""
