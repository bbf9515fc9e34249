"""The state of a pipeline before a run acts: its tables, position, engine, and its topics' offsets."""
