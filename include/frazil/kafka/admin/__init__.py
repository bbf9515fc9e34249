"""Requests to a cluster about topics, consumer groups, permissions and logs."""
