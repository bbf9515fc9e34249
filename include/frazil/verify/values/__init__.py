"""Derives the expected row of a record independently, from what the documentation promises."""
