"""Typed columns, whatever made them, to the declared columns of a destination."""
