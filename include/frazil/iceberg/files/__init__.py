"""Writes data files that no snapshot names yet, and limits the partitions that a task writes."""
