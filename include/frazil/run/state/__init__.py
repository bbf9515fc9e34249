"""What a pipeline is before a run does anything: its tables, position, engine, and what the broker says of its topics."""
