"""Reads back what happened: history, dead letters, queries."""
