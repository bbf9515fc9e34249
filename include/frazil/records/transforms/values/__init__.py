"""Transforms of values, and how numbers, dates and texts are written."""
