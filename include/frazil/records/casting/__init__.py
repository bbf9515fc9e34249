"""Casts typed columns of any format to the declared columns of a destination."""
