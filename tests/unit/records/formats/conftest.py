"""Writer schemas at hand, and what every decoder owes: one outcome per value."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema
from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient

from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import Decoded, Format, NamedSchema, SchemaKind, WriterSchema


class Schemas:
    """A `SchemaSource` in memory: schemas of its own, and those that the reference serializers registered."""

    def __init__(self) -> None:
        self.client = MockSchemaRegistryClient({"url": "mock://tests"})
        self.own: dict[int | UUID, WriterSchema] = {}
        self.asked: list[int | UUID] = []

    def add(self, schema_id: int | UUID, kind: SchemaKind, text: str, *references: NamedSchema) -> None:
        """Register a schema under an id."""
        self.own[schema_id] = WriterSchema(kind, text, references)

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return the schema of an id."""
        self.asked.append(schema_id)
        return self.own.get(schema_id) or self._registered(schema_id)

    def _registered(self, schema_id: int | UUID) -> WriterSchema | None:
        if not isinstance(schema_id, int) or schema_id not in self.client._store.schema_id_index:
            return None
        schema_of_id = self.client.get_schema(schema_id)
        kind: SchemaKind = schema_of_id.schema_type
        return WriterSchema(kind, schema_of_id.schema_str, tuple(self._references(schema_of_id)))

    def _references(self, schema: Schema) -> list[NamedSchema]:
        schemas: list[NamedSchema] = []
        for reference in schema.references or []:
            referred = self.client.get_version(reference.subject, reference.version).schema
            schemas += [*self._references(referred), NamedSchema(reference.name, referred.schema_str)]
        return list({reference.name: reference for reference in schemas}.values())


@pytest.fixture
def schemas() -> Schemas:
    """A registry without a network."""
    return Schemas()


Outcomes = list[dict[str, object] | DeadCode]
Decode = Callable[[Format, list[bytes]], Outcomes]


def _outcomes(decoded: Decoded, count: int) -> Outcomes:
    results: dict[int, dict[str, object] | DeadCode] = {}
    for group in decoded.groups:
        group.columns.validate(full=True)
        positions = group.positions.to_pylist()
        assert positions == sorted(positions)
        assert not results.keys() & set(positions)
        results.update(zip(positions, group.columns.to_pylist(), strict=True))
    assert not results.keys() & decoded.dead.keys()
    assert list(decoded.dead) == sorted(decoded.dead)
    for position, reason in decoded.dead.items():
        assert len(reason.message) < 400
        results[position] = reason.code
    return [results[number] for number in range(count)]


@pytest.fixture
def decode() -> Decode:
    """Decode values: per value its row or the code of its reason, and no value without or with two outcomes."""

    def run(decoder: Format, values: list[bytes]) -> Outcomes:
        return _outcomes(decoder.decode(pa.array(values, pa.binary())), len(values))

    return run
