"""Every format on every way to a table: declared or followed columns, SQL, merging, ORC files, format version 3."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.model.spec import RecordSpec
from frazil.run.staging.record_spec import record_specs
from tests.fuzz import structures
from tests.fuzz.subjects import SUBJECTS, Subject
from tests.fuzz.tokens import HOSTILE_TOKENS
from tests.fuzz.writers import LINE, WRITERS, in_json

TABLE = "shop.sales"
_FLAT = {
    "id": {"type": "long", "required": True},
    "name": "string",
    "price": "decimal(10, 2)",
    "active": "boolean",
    "score": "double",
    "created": "timestamptz",
    "day": "date",
    "count": "int",
}
_NESTED = {**_FLAT, "tags": "list<string>", "place": "struct<city: string, lat: double, lon: double>"}
_LINE = {**_FLAT, "city": "string", "note": "string"}
_KEY = {"id": {"type": "long", "required": True}}
_FOLLOWS = {"columns": _KEY, "evolve": "widen", "max_columns": 60}

FORMATS: Mapping[str, Mapping[str, Any]] = {
    "json": {"format": "json"},
    "json-envelope": {"format": "json-envelope"},
    "avro": {"format": "avro", "registry": "main"},
    "protobuf": {"format": "protobuf", "registry": "main"},
    "json-schema": {"format": "json-schema", "registry": "main"},
    "delimited": {"format": "delimited", "fields": LINE.names},
}
SQL = [{"type": "Sql", "select": "*, 1 AS added"}]


def _destinations(columns: Mapping[str, Any]) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Way -> the destination, and what else the file says."""
    orc = {"columns": columns, "properties": {"write.format.default": "orc"}}
    return {
        "declared": ({"columns": columns}, {}),
        "rescuing": ({"columns": {**columns, "_rescued": "string"}}, {}),
        "evolving": ({"max_columns": 60}, {}),
        "renaming": ({"max_columns": 60, "evolve": "full", "on_incompatible": "variant_column"}, {}),
        "sql": ({"columns": columns}, {"transforms": SQL}),
        "evolving-sql": (_FOLLOWS, {"transforms": SQL}),
        "merged": ({"columns": columns, "write": "upsert", "identifier": ["id"]}, {}),
        "evolving-merged": ({**_FOLLOWS, "write": "upsert", "identifier": ["id"]}, {}),
        "orc": (orc, {}),
        "evolving-orc": ({**orc, "evolve": "widen", "max_columns": 60}, {}),
        "v3": ({"columns": columns, "properties": {"format-version": "3"}}, {}),
    }


def _document(destination: Mapping[str, Any], value: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline file, but for its topic."""
    return {"name": "sales", "value": value, "destinations": [{"table": TABLE, **destination}], **more}


def _spec(pipeline: Pipeline, columns: pa.Schema) -> RecordSpec:
    return record_specs(pipeline, {TABLE: columns}, {"main": WRITERS})[TABLE]


def _cell(base: Subject, name: str, document: Mapping[str, Any]) -> Subject:
    pipeline = Pipeline.model_validate({**document, "source": {"topics": ["orders"]}, "engine": "spark"})
    spec = _spec(pipeline, declared_columns(pipeline.destination(TABLE)))
    tokens = (*base.tokens, *HOSTILE_TOKENS)
    specs = None if spec.evolution is None else partial(_spec, pipeline)
    return replace(base, name=name, spec=spec, specs=specs, tokens=tokens, faults={})


def _change(value: bytes) -> bytes:
    return b'{"op": "c", "ts_ms": 1, "before": null, "after": %s}' % value


def _change_of(n: int) -> bytes:
    return _change(in_json(n))


def _any_change(rng: Random) -> bytes:
    now, before = structures.json_object(rng), structures.json_object(rng)
    values: list[bytes] = [b"null", now, before, b"{}", b'{"id": 1}']
    op = json.dumps(rng.choice(("c", "u", "d", "r", "t", "x", "", None, 1)))
    return b'{"op": %s, "ts_ms": 1, "before": %s, "after": %s}' % (op.encode(), rng.choice(values), rng.choice(values))


def _documents() -> Iterator[tuple[str, Subject, dict[str, Any]]]:
    """The name of a cell, the subject that feeds it, and the pipeline file."""
    bases = {subject.name: subject for subject in SUBJECTS}
    for kind, value in FORMATS.items():
        columns = _LINE if kind == "delimited" else _NESTED
        for way, (destination, more) in _destinations(columns).items():
            read = {**value, "unknown_fields": "rescue" if way == "rescuing" else "ignore"}
            yield f"{kind}-{way}", bases[kind], _document(destination, read, more)
    plain = bases["json"]
    variant = {"columns": {**_NESTED, "whole": {"type": "variant", "from": []}}, "properties": {"format-version": "3"}}
    yield "json-variant", plain, _document(variant, FORMATS["json"], {})
    debezium = {"write": "cdc", "identifier": ["id"], "changes": {"format": "debezium"}}
    changing = replace(plain, good=_change_of, structure=_any_change)
    for name, columns_ in (("cdc", {"columns": _NESTED}), ("evolving-cdc", _FOLLOWS)):
        yield f"json-{name}", changing, _document({**debezium, **columns_}, FORMATS["json"], {})


DOCUMENTS: Mapping[str, Mapping[str, Any]] = {name: document for name, _, document in _documents()}
"""The pipeline file of each cell, without its topic."""

CELLS = tuple(_cell(base, name, document) for name, base, document in _documents())
