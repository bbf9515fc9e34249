"""Schema evolution: the schema changes that records need, requested before their data is written."""
