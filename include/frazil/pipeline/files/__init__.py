"""Finds, reads and compares YAML files, and explains why a file is invalid."""
