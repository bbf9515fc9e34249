"""Frazil: Kafka topics become Apache Iceberg tables, in bounded batches with the offsets inside the snapshot."""

from __future__ import annotations

__version__ = "0.1.0"
