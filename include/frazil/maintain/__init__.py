"""Maintenance of a pipeline's tables: inspects them, decides which steps are due, and runs these in order.

Whatever needs a catalog, a storage or an engine raises Retryable where that is not available now; docstrings don't say so again.
"""
