"""Commands that only read: history, dead letters, queries, verification."""
