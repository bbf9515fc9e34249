"""Facts from the ledger and the snapshots as plain data, and the results of a check."""
