"""Frazil's own transforms and predicates, each a class with all that belongs to it. docs/extending.md says how to add one."""
