"""Batches that a person asks for: replay, reset, rewind, repair, and dead letters that are decoded again."""
