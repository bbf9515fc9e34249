"""Reports from what is stored: history, lag, dead letters, lineage, queries on tables, and the list of plugins."""
