"""Operators and task functions."""
