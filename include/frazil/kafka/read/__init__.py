"""Exact ranges of partitions as Arrow batches."""
