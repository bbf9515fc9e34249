"""Spark Connect: the server that Frazil runs, and sessions on any such server."""
