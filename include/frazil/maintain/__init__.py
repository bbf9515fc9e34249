"""Maintenance of a pipeline's tables: what they consist of, which steps that makes due, and doing them in order."""
