"""Batches that a person asks for: replay, reset, rewind, repair, and replay of dead letters."""
