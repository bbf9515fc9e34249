"""Answers of a registry about ids, and the outcome of values that name these ids."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from frazil.records.formats import registered
from frazil.records.formats.avro.avro import AvroFormat
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import TooManyUnknownIds, WriterSchema


def framed(schema_id: int) -> bytes:
    """An Avro int behind the id of its schema."""
    return b"\0" + schema_id.to_bytes(4, "big") + b"\x02"


class Flooded:
    """A source that knows one id, and asks for no more than so many others."""

    def __init__(self, most: int) -> None:
        self.left = most

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return the schema of id 1."""
        if schema_id == 1:
            return WriterSchema("AVRO", '"int"')
        if not self.left:
            raise TooManyUnknownIds
        self.left -= 1
        return None


def test_flood_of_unknown_ids_leaves_known_schemas_available() -> None:
    """The commonest ids are asked for first, so a new schema among invented ones lands; each other value is dead."""
    invented = [framed(schema_id) for schema_id in range(2, 502)]
    decoded = AvroFormat(Flooded(100)).decode(pa.array([*invented, framed(1), framed(1)]))

    codes = [reason.code for reason in decoded.dead.values()]
    assert codes.count(DeadCode.UNKNOWN_SCHEMA) == 100
    assert codes.count(DeadCode.SCHEMA_NOT_ASKED_FOR) == 400
    assert [position for group in decoded.groups for position in group.positions.to_pylist()] == [500, 501]


class One:
    """A source of one schema."""

    def __init__(self, schema: WriterSchema) -> None:
        self.one = schema

    def schema(self, _: int | UUID) -> WriterSchema:
        """Return it."""
        return self.one


def test_refused_schema_is_unusable() -> None:
    """The letter says what the registry's answer was."""
    decoded = AvroFormat(One(WriterSchema("AVRO", "", refusal="too many"))).decode(pa.array([framed(1)]))

    assert decoded.dead[0].code is DeadCode.UNUSABLE_SCHEMA
    assert decoded.dead[0].message == "schema 1: too many"


def test_a_schema_of_many_characters_is_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read it would take memory and minutes."""
    monkeypatch.setattr(registered, "MAX_CHARACTERS", 4)
    decoded = AvroFormat(One(WriterSchema("AVRO", '"int"'))).decode(pa.array([framed(1)]))

    assert decoded.dead[0].code is DeadCode.UNUSABLE_SCHEMA
    assert decoded.dead[0].message == "schema 1: expected at most 4 characters, found 5"
