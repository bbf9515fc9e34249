"""Operators, and functions of Python tasks."""
