"""Lists of elements with many columns: a few bytes must not become gigabytes, in any format."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import Any

import pyarrow as pa
import pytest

from frazil.records.formats.avro import columns as avro_cursors
from frazil.records.formats.protobuf import protobuf as protobuf_format
from frazil.records.json import typed
from frazil.records.model import cells
from frazil.records.model.cells import in_steps
from frazil.records.model.format import WriterSchema
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.records.transforms.kinds.nested import Explode
from tests.format_specs import format_spec
from tests.unit.records.evolution.evolving import spec
from tests.unit.records.kafka_batches import OneTable, kafka_batch

FIELDS = 1_000
ELEMENT = pa.struct([pa.field(f"f{number}", pa.int64()) for number in range(FIELDS)])
COLUMNS = pa.schema([pa.field("id", pa.int64()), pa.field("items", pa.list_(ELEMENT))])
NARROW = pa.schema([pa.field("id", pa.int64()), pa.field("items", pa.list_(pa.struct([("f0", pa.int64())])))])

COUNTING = pa.proxy_memory_pool(pa.default_memory_pool())
"""Knows how much was asked for at once. It outlives what is made with it."""


class One:
    """A registry of one schema."""

    def __init__(self, kind: Any, text: str) -> None:
        self._schema = WriterSchema(kind, text)

    def schema(self, _: object) -> WriterSchema:
        """Return it, whatever the id is."""
        return self._schema


def avro(*fields: str) -> str:
    """Items of a record that is not there: each takes a byte."""
    schema = {"type": "record", "name": "held", "fields": [{"name": name, "type": "long"} for name in fields]}
    item = {"type": "record", "name": "item", "fields": [{"name": "held", "type": ["null", schema]}]}
    whole = [{"name": "id", "type": "long"}, {"name": "items", "type": {"type": "array", "items": item}}]
    return json.dumps({"type": "record", "name": "r", "fields": whole})


def protobuf(*fields: str) -> str:
    """Messages of many fields, of which none is set: each takes two bytes."""
    item = " ".join(f"optional int64 {name} = {number};" for number, name in enumerate(fields, 1))
    return f'syntax = "proto3"; message R {{ int64 id = 1; repeated Item items = 2; message Item {{ {item} }} }}'


def json_schema(*fields: str) -> str:
    item = {"type": "object", "properties": {name: {"type": "integer"} for name in fields}}
    items = {"type": "array", "items": item}
    return json.dumps({"type": "object", "properties": {"id": {"type": "integer"}, "items": items}})


def envelope(*fields: str) -> str:
    item = {"type": "struct", "fields": [{"field": name, "type": "int64", "optional": True} for name in fields]}
    items = {"type": "array", "items": item, "optional": True}
    whole = [{"field": "id", "type": "int64", "optional": True}, {"field": "items"} | items]
    return json.dumps({"type": "struct", "fields": whole})


def varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded, number = encoded + bytes([number & 0x7F | 0x80]), number >> 7
    return encoded + bytes([number])


NAMES = [f"f{number}" for number in range(FIELDS)]
HEAD = b"\0\0\0\0\1"
DIRECT = RecordSpec(COLUMNS)


def as_json(items: int) -> bytes:
    return b'{"id":1,"items":[' + b",".join([b"{}"] * items) + b"]}"


def of_registry(name: str, kind: str, text: str) -> RecordSpec:
    return RecordSpec(COLUMNS if name != "avro" else NESTED, format=format_spec(name=name, source=One(kind, text)))


NESTED = pa.schema([COLUMNS.field("id"), pa.field("items", pa.list_(pa.struct([("held", ELEMENT)])))])

WAYS: dict[str, tuple[RecordSpec, Callable[[int], bytes]]] = {
    "json": (DIRECT, as_json),
    "json, maps": (
        RecordSpec(pa.schema([COLUMNS.field("id"), pa.field("items", pa.map_(pa.string(), ELEMENT))])),
        lambda items: b'{"id":1,"items":{' + b",".join(b'"%d":{}' % number for number in range(items)) + b"}}",
    ),
    "json, any case": (replace(DIRECT, field_names="case_insensitive"), as_json),
    "json, evolving": (spec(list(COLUMNS), Evolution(max_columns=5_000)), as_json),
    "json schema": (
        of_registry("json-schema", "JSON", json_schema(*NAMES)),
        lambda items: HEAD + as_json(items),
    ),
    "envelope": (
        RecordSpec(COLUMNS, format=format_spec(name="json-envelope")),
        lambda items: b'{"schema":%s,"payload":%s}' % (envelope(*NAMES).encode(), as_json(items)),
    ),
    "avro": (
        of_registry("avro", "AVRO", avro(*NAMES)),
        lambda items: HEAD + varint(2) + (varint(2 * items) + b"\0" * items if items else b"") + b"\0",
    ),
    "protobuf": (
        of_registry("protobuf", "PROTOBUF", protobuf(*NAMES)),
        lambda items: HEAD + b"\0" + b"\x08\1" + b"\x12\0" * items,
    ),
    "table wider than the values": (
        of_registry("protobuf", "PROTOBUF", protobuf("f0")),
        lambda items: HEAD + b"\0" + b"\x08\1" + b"\x12\0" * items,
    ),
}


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(("spec", "value"), WAYS.values(), ids=WAYS.keys())
def test_record_whose_lists_fill_too_many_cells_is_a_dead_letter(
    spec: RecordSpec, value: Callable[[int], bytes], count: int
) -> None:
    """A record with more cells is dead, however few bytes it has; its neighbours land."""
    hostile, good = value(5_000), value(3)
    outcomes = OneTable(spec, 1).decode(kafka_batch([good, *[hostile] * count, good]))
    assert outcomes.dead.column("code").to_pylist() == ["TOO_WIDE"] * count
    assert outcomes.rows.num_rows == 2
    assert [len(items) for items in outcomes.rows.column("items").to_pylist()] == [3, 3]


@pytest.mark.parametrize("way", ["json", "avro", "protobuf", "table wider than the values"])
def test_record_within_the_limit_lands_beside_any_others(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are too wide together are decoded in smaller steps: each has the outcome that it has alone."""
    spec, value = WAYS[way]
    monkeypatch.setattr(cells, "STEP_BYTES", 1 << 20)
    monkeypatch.setattr(cells, "STEP_CELLS", 50_000)
    monkeypatch.setattr(avro_cursors, "_STEP_CELLS", 1 << 17)
    monkeypatch.setattr(protobuf_format, "_STEP_CELLS", 50_000)
    values = [value(items) for items in (2, 90, 5_000, 90, 3, *[1] * 40)]

    parts = [outcomes for _, outcomes in in_steps(OneTable(spec, 1).decode, [kafka_batch(values)])]

    assert len(parts) > 1
    lengths = [len(items) for part in parts for items in part.rows.column("items").to_pylist()]
    assert lengths == [2, 90, 90, 3, *[1] * 40]
    assert [code for part in parts for code in part.dead.column("code").to_pylist()] == ["TOO_WIDE"]


def test_list_with_a_value_for_each_cell_is_bounded_by_the_size_of_records_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A record of megabytes may have as many cells as it has bytes."""
    monkeypatch.setattr(cells, "MAX_CELLS", 10_000)
    monkeypatch.setattr(typed, "MAX_CELLS", 10_000)
    items = [dict.fromkeys(NAMES, 7)] * 12
    full = json.dumps({"id": 1, "items": items}).encode()
    outcomes = OneTable(DIRECT, 1).decode(kafka_batch([full, as_json(12)]))
    assert [len(of) for of in outcomes.rows.column("items").to_pylist()] == [12]
    assert outcomes.dead.column("code").to_pylist() == ["TOO_WIDE"]


PEAK = """
from pathlib import Path
from tests.unit.records.model.test_cells_wide_lists import WAYS, OneTable, in_steps, kafka_batch

def peak():  # not ru_maxrss: Linux counts the memory of whoever started a process as its own
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

wanted, value = WAYS["{way}"]
decoder, before = OneTable(wanted, 1), peak()
values = [*[value(900)] * {count}, value(100_000)]
rows = sum(found.rows.num_rows for _, found in in_steps(decoder.decode, [kafka_batch(values)]))
print(rows, peak() - before)
"""


def grown(way: str, count: int) -> int:
    """Decode records that are as wide as they may be, and one that is wider; return the megabytes that it takes."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK.format(way=way, count=count)], check=True, capture_output=True, text=True
    )
    rows, seconds = map(int, done.stdout.split())
    assert rows == count
    return seconds


def test_kilobytes_of_empty_messages_take_bounded_memory() -> None:
    """100,000 messages of two bytes, with 1,000 fields each, would be a gigabyte before the first is looked at."""
    assert grown("protobuf", 1) < 300


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_many_wide_records_take_bounded_memory_together(way: str) -> None:
    """Each way has 20 KB to 2 MB for 18 million cells."""
    assert grown(way, 20) < 1_024


def test_one_record_that_explodes_into_wide_rows_is_a_dead_letter() -> None:
    """Each row is within the limit, all together are not, and a record can't be split."""
    tag = pa.struct([pa.field(f"t{number}", pa.int64()) for number in range(20)])
    columns = pa.schema([("id", pa.int64()), ("items", pa.int64()), ("tags", pa.list_(tag))])
    spec = RecordSpec(columns, fields=columns, infers=True, transforms=(Explode("items"),))
    wide = {"id": 1, "items": list(range(1_000)), "tags": [{"t0": 1}] * 1_000}
    good = {"id": 2, "items": [1, 2], "tags": [{"t0": 1}]}
    records = kafka_batch([json.dumps(each).encode() for each in (good, wide, good)])

    outcomes = [outcome for _, outcome in in_steps(OneTable(spec, 1).decode, [records])]

    assert [code for outcome in outcomes for code in outcome.dead["code"].to_pylist()] == ["TOO_WIDE"]
    assert [row for outcome in outcomes for row in outcome.rows["id"].to_pylist()] == [2, 2, 2, 2]


def test_record_whose_rows_all_fail_is_refused_once() -> None:
    """A reason for each of its rows took ten times as long as to read it: the first one of a record is enough."""
    columns = pa.schema([("id", pa.int64()), ("items", pa.int64())])
    spec = RecordSpec(columns, fields=columns, infers=True, transforms=(Explode("items"),))
    late = {"id": 2, "items": [0] * 5_000 + [2.5]}
    values = [
        b'{"id":1,"items":[' + b",".join([b"{}"] * 200_000) + b"]}",
        json.dumps(late).encode(),
        b'{"id":3,"items":[1]}',
    ]
    decoder = OneTable(spec, 1)
    before = process_time()
    outcomes = decoder.decode(kafka_batch(values))

    assert process_time() - before < 1.6
    assert outcomes.dead["code"].to_pylist() == ["WRONG_TYPE", "LOSSY_CAST"]
    assert outcomes.rows["id"].to_pylist() == [3]


def test_long_list_beside_a_large_record_explodes() -> None:
    """Memory is allocated once for the bytes of each record's value, not for each row."""
    columns = pa.schema([("id", pa.int64()), ("items", pa.int64())])
    spec = RecordSpec(columns, fields=columns, infers=True, transforms=(Explode("items"),))
    large = json.dumps({"id": 1, "items": [0]}).encode().ljust(16 * 2**20)
    long = json.dumps({"id": 2, "items": [0] * 100_000}).encode()

    usual = pa.default_memory_pool()
    pa.set_memory_pool(COUNTING)
    try:
        (outcomes,) = [outcome for _, outcome in in_steps(OneTable(spec, 1).decode, [kafka_batch([large, long])])]
    finally:
        pa.set_memory_pool(usual)

    assert not outcomes.dead["code"].to_pylist()
    assert len(outcomes.rows) == 100_001
    assert COUNTING.max_memory() < 2**30


@pytest.mark.parametrize("field_name", ["field", "key"])
def test_fields_beside_a_long_list_are_repeated_within_memory(field_name: str) -> None:
    """A megabyte for each of 10,000 elements would be 10 GB."""
    columns = pa.schema([("id", pa.int64()), ("items", pa.int64()), ("big", pa.string())])
    spec = RecordSpec(columns, fields=columns, infers=True, transforms=(Explode("items"),))
    large = "x" * 2**20
    long = {"id": 1, "items": [0] * 10_000} | ({"big": large} if field_name == "field" else {})
    short = {"id": 2, "items": [1, 2], "big": large}
    values = [json.dumps(each).encode() for each in (short, long, short)]
    records = kafka_batch(values)
    if field_name == "key":
        field_index = records.schema.get_field_index("key")
        keys = pa.array([None, large.encode(), None], records.schema.field(field_index).type)
        records = records.set_column(field_index, records.schema.field(field_index), keys)

    outcomes = [outcome for _, outcome in in_steps(OneTable(spec, 1).decode, [records])]

    assert [code for outcome in outcomes for code in outcome.dead["code"].to_pylist()] == ["TOO_WIDE"]
    assert [row for outcome in outcomes for row in outcome.rows["id"].to_pylist()] == [2, 2, 2, 2]


def test_rows_of_one_record_are_bounded_by_the_columns_of_the_table() -> None:
    """Empty elements are two bytes each, and a row of 950 columns in the table."""
    columns = pa.schema([("id", pa.int64()), *((f"c{number}", pa.int64()) for number in range(949))])
    fields = pa.schema([("id", pa.int64()), ("items", pa.list_(pa.struct([("c0", pa.int64())])))])
    spec = RecordSpec(columns, fields=fields, transforms=(Explode("items", spread=True),))
    wide, usual = ({"id": number, "items": [{}] * size} for number, size in ((1, 30_000), (2, 901)))
    values = [json.dumps(each).encode() for each in (*[usual] * 30, wide)]

    outcomes = [outcome for _, outcome in in_steps(OneTable(spec, 1).decode, [kafka_batch(values)])]

    assert [code for outcome in outcomes for code in outcome.dead["code"].to_pylist()] == ["TOO_WIDE"]
    assert sum(len(outcome.rows) for outcome in outcomes) == 30 * 901
    assert len(outcomes) > 1
