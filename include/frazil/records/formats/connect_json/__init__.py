"""Kafka Connect's JSON with its schema in every record."""
