"""Maintenance of a pipeline's tables: inspects them, decides which steps are due, and runs these in order. Begin with `run`.

Every function that needs a catalog, a storage or an engine raises Retryable if that is not available; docstrings don't repeat it.
"""
