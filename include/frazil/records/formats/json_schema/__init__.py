"""JSON that a registered schema describes."""
