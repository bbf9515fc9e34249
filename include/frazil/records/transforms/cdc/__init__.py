"""The sink's transforms of change events: Debezium, DMS, MongoDB."""
