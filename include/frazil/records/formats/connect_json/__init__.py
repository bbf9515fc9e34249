"""Kafka Connect's JSON with the schema in each record."""

from __future__ import annotations

from dataclasses import dataclass

from frazil.records.model.format import Format, FormatSpec


@dataclass(frozen=True, slots=True)
class EnvelopeSpec(FormatSpec):
    """JSON of Kafka Connect with schemas."""

    names = ("json-envelope",)
    remark = "Kafka Connect's, with its schema"
    shared_keys = ()

    def open(self, *, blocks: bool) -> Format:
        """Make the format."""
        from frazil.records.formats.connect_json.envelope import EnvelopeFormat

        return EnvelopeFormat(blocks=blocks)
