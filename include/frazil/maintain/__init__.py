"""Maintenance of a pipeline's tables: what they consist of, which steps that makes due, and doing them in order.

Whatever needs a catalog, a storage or an engine raises Retryable where that is not available now; docstrings don't say so again.
"""
