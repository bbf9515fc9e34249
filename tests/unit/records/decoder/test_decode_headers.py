"""Headers in columns and in routes: which header a column takes, and the dead letter of a record with a hostile one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.iceberg.schema.schema import declared_columns
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.redaction import redacted
from frazil.records.model.cells import in_steps
from frazil.records.model.rows import KAFKA_SCHEMA, Outcomes
from frazil.run.staging.record_spec import record_specs, route_of

Headers = Sequence[tuple[str, bytes | None]]

TYPE = {"ce_type": {"type": "string", "part": "header"}}
EVERY_TYPE = {
    "id": "long",
    "text": {"type": "string", "part": "header", "from": "h"},
    "raw": {"type": "binary", "part": "header", "from": "h"},
    "four": {"type": "fixed[4]", "part": "header", "from": "f"},
    "number": {"type": "int", "part": "header", "from": "n"},
    "amount": {"type": "decimal(6,2)", "part": "header", "from": "d"},
    "flag": {"type": "boolean", "part": "header", "from": "b"},
    "at": {"type": "timestamptz", "part": "header", "from": "t"},
    "since": {"type": "timestamptz", "part": "header", "from": "ms", "unit": "ms"},
    "uid": {"type": "uuid", "part": "header", "from": "u"},
}
EVERY_HEADER: Headers = [
    *[("h", b"caf\xc3\xa9"), ("f", b"\x00\xff\x01\x02"), ("n", b"-7"), ("d", b"12.50"), ("b", b"true")],
    *[("t", b"2026-01-02T03:04:05Z"), ("ms", b"1000"), ("u", b"6ba7b810-9dad-11d1-80b4-00c04fd430c8")],
]


def pipeline(columns: dict[str, Any], **keys: Any) -> Pipeline:
    """One table, or several, whose columns these are."""
    destination = {"table": "shop.events", "columns": columns, **keys.pop("destination", {})}
    raw = {"name": "p", "source": {"cluster": "c", "topics": ["t"]}, "destinations": [destination]}
    return Pipeline.model_validate({**raw, **keys})


def decode(
    file: Pipeline, *messages: tuple[bytes | None, Headers], key: bytes | None = None, blocks: bool = True
) -> Outcomes:
    """The outcomes of records with these values and headers."""
    columns = {destination.table: declared_columns(destination) for destination in file.destinations}
    decoder = Decoder(record_specs(file, columns), route_of(file, columns), 7, blocks=blocks)
    return decoder.decode(records(*messages, key=key))


def records(*messages: tuple[bytes | None, Headers], key: bytes | None = None) -> pa.RecordBatch:
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": offset,
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": content} for name, content in headers] or None,
        }
        for offset, (value, headers) in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(rows, KAFKA_SCHEMA)


def cells(outcomes: Outcomes, *names: str, table: str = "shop.events") -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in outcomes.rows[table].to_pylist()]


def letters(outcomes: Outcomes) -> list[tuple[int, str, str | None]]:
    return [(letter["offset"], letter["code"], letter["path"]) for letter in outcomes.dead.to_pylist()]


@pytest.mark.parametrize("blocks", [True, False])
def test_each_simple_type_takes_a_header(blocks: bool) -> None:
    outcomes = decode(pipeline(EVERY_TYPE), (b'{"id": 1}', EVERY_HEADER), (b'{"id": 2}', []), blocks=blocks)

    first, second = outcomes.rows["shop.events"].select(list(EVERY_TYPE)).to_pylist()

    assert first.pop("uid").hex == "6ba7b8109dad11d180b400c04fd430c8"
    assert first == {
        "id": 1,
        "text": "café",
        "raw": "café".encode(),
        "four": b"\x00\xff\x01\x02",
        "number": -7,
        "amount": Decimal("12.50"),
        "flag": True,
        "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "since": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    }
    assert set(second.values()) == {2, None}
    assert not outcomes.dead.num_rows


LINE = {"format": "delimited", "fields": ["id"]}
AVRO = {
    "format": "avro",
    "schema": json.dumps({"type": "record", "name": "V", "fields": [{"name": "id", "type": "long"}]}),
}
PROTOBUF = {"format": "protobuf", "message": "V", "schema": 'syntax = "proto3"; message V { int64 id = 1; }'}
ENVELOPE = json.dumps(
    {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int64"}]}, "payload": {"id": 1}}
).encode()


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        ({}, b'{"id": 1}'),
        ({"unknown_fields": "fail"}, b'{"id": 1}'),
        ({"field_names": "case_insensitive"}, b'{"ID": 1}'),
        (LINE, b"1"),
        (AVRO, b"\x02"),
        (PROTOBUF, b"\x08\x01"),
        ({"format": "json-envelope"}, ENVELOPE),
        ({"format": "long"}, (1).to_bytes(8, "big")),
        ({"format": "string"}, b"1"),
        ({"format": "bytes"}, b"1"),
    ],
)
@pytest.mark.parametrize("has_key", [True, False])
def test_headers_are_columns_beside_values_of_each_format(value: dict[str, Any], raw: bytes, has_key: bool) -> None:
    kind = {"string": "string", "bytes": "binary"}.get(value.get("format", ""), "long")
    source = "value" if value.get("format") in ("long", "string", "bytes") else "id"
    columns = {"id": {"type": kind, "from": source}, **TYPE}
    keys = {"key": {"format": "string"}} if has_key else {}
    if has_key:
        columns["customer"] = {"type": "string", "part": "key", "from": "value"}
    file = pipeline(columns, value=value, **keys)

    outcomes = decode(file, (raw, [("ce_type", b"made")]), (raw, [("ce_type", b"\xff")]), (raw, []), key=b"k")

    expected = {"long": 1, "string": "1", "binary": b"1"}[kind]
    assert cells(outcomes, "id", "ce_type") == [(expected, "made"), (expected, None)]
    assert not has_key or cells(outcomes, "customer") == [("k",), ("k",)]
    assert letters(outcomes) == [(1, "INVALID_TEXT", "header.ce_type")]


def test_last_header_of_a_name_counts_and_names_differ_by_case() -> None:
    headers: Headers = [
        ("ce_type", b"\xff"),
        ("CE_TYPE", b"other"),
        ("ce_type", b"last"),
        ("ce_type2", b"x"),
        ("", b"y"),
    ]

    outcomes = decode(
        pipeline({"id": "long", **TYPE}), (b"{}", headers), (b"{}", [("ce_type", b"a"), ("ce_type", None)])
    )

    assert cells(outcomes, "ce_type") == [("last",), (None,)]


def test_header_without_a_name_is_a_column() -> None:
    columns = {"id": "long", "unnamed": {"type": "string", "part": "header", "from": ""}}

    assert cells(decode(pipeline(columns), (b"{}", [("", b"x"), ("a", b"y")])), "unnamed") == [("x",)]


def test_missing_header_is_the_default_and_one_without_value_is_null() -> None:
    optional = {"type": "int", "part": "header", "default": 5}
    columns = {"id": "long", "n": optional, "r": {**optional, "required": True}, "u": {**optional, "type": "uuid"}}
    columns["u"]["default"] = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

    outcomes = decode(
        pipeline(columns),
        (b"{}", []),
        (b"{}", [("n", None), ("r", None), ("u", None)]),
        (b"{}", [("n", b"1"), ("r", b"2")]),
    )

    rows = [(n, r, u and u.hex[:4]) for n, r, u in cells(outcomes, "n", "r", "u")]
    assert rows == [(5, 5, "6ba7"), (None, 5, None), (1, 2, "6ba7")]


def test_record_without_a_required_header_is_a_dead_letter_and_its_neighbours_land() -> None:
    name = "x" * 300
    columns = {"id": "long", name: {"type": "int", "part": "header", "required": True}}
    messages = [
        (b'{"id": 1}', [(name, b"1")]),
        (b'{"id": 2}', []),
        (b'{"id": 3}', [(name, b"1.5")]),
        (b'{"id": "x"}', []),
    ]

    outcomes = decode(pipeline(columns), *messages)

    assert cells(outcomes, "id") == [(1,)]
    dead_letters = letters(outcomes)
    assert [code for _, code, _ in dead_letters] == ["MISSING_REQUIRED", "LOSSY_CAST", "WRONG_TYPE"]
    assert dead_letters[0][2] == f"header.{'x' * 80}…"


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b'{"id": 1}', b'{"id": "a"}', b"{", b"", None]),
            st.lists(
                st.tuples(st.sampled_from(["ce_type", "n", "", "x"]), st.none() | st.binary(max_size=4)), max_size=4
            ),
        ),
        max_size=6,
    )
)
def test_each_record_has_the_outcome_that_it_has_alone(messages: list[tuple[bytes | None, Headers]]) -> None:
    file = pipeline({"id": "long", **TYPE, "n": {"type": "int", "part": "header", "required": True}})

    whole = decode(file, *messages)

    rows, dead = iter(cells(whole, "_kafka_offset", "id", "ce_type", "n")), iter(letters(whole))
    for offset, record in enumerate(messages):
        alone = decode(file, record)
        for row in cells(alone, "id", "ce_type", "n"):
            assert next(rows) == (offset, *row)
        for letter in letters(alone):
            assert next(dead) == (offset, *letter[1:])
    assert (next(rows, None), next(dead, None)) == (None, None)


def test_thousands_of_headers_and_megabytes_in_one_are_read() -> None:
    many: Headers = [*((f"h{number}", b"x") for number in range(50_000)), ("ce_type", b"y" * 4_000_000)]

    outcomes = decode(pipeline({"id": "long", **TYPE}), (b"{}", many), (b"{}", [("ce_type", b"z")]))

    assert [len(text) for (text,) in cells(outcomes, "ce_type")] == [4_000_000, 1]


def test_headers_repeated_in_many_rows_of_a_change_are_a_dead_letter() -> None:
    columns = {"id": {"type": "long", "required": True}, "trace": {"type": "string", "part": "header"}}
    merged = {"write": "cdc", "identifier": ["id"], "changes": {"format": "canal"}}
    change = {"type": "INSERT", "data": [{"id": str(number)} for number in range(2_000)], "old": None, "isDdl": False}
    file = pipeline(columns, destination=merged)
    value = json.dumps(change).encode()

    columns_by_table = {"shop.events": declared_columns(file.destinations[0])}
    decoder = Decoder(record_specs(file, columns_by_table), None, 7)
    batch = records((value, [("trace", b"x" * 100_000)]), (value, [("trace", b"y")]))
    steps = [outcomes for _, outcomes in in_steps(decoder.decode, [batch])]

    assert [code for step in steps for _, code, _ in letters(step)] == ["TOO_WIDE"]
    assert sum(step.rows["shop.events"].num_rows for step in steps) == 2_000


def test_bound_on_repeated_headers_does_not_depend_on_neighbours() -> None:
    """Records that change no row count for nothing: beside them, too, the rows of one record are bounded."""
    merged = {"write": "cdc", "identifier": ["id"], "changes": {"format": "canal"}}
    columns = {"id": {"type": "long", "required": True}, "trace": {"type": "string", "part": "header"}}
    file = pipeline(columns, destination=merged)
    inserted = {"type": "INSERT", "isDdl": False, "ts": 1, "es": 1, "data": [{"id": str(n)} for n in range(400)]}
    wide = (json.dumps(inserted).encode(), [("trace", b"x" * 500_000)])
    altered = (b'{"type": "ALTER", "isDdl": true, "ts": 1, "es": 1, "data": null}', [])

    for messages in ([wide], [wide, *[altered] * 410]):
        outcomes = decode(file, *messages)
        assert outcomes.dead.column("code").to_pylist() == ["TOO_WIDE"]
        assert outcomes.rows["shop.events"].num_rows == 0


def test_reason_of_an_unreadable_value_is_told_before_that_of_its_header() -> None:
    """The reason of the value comes first, with transforms and without them."""
    columns = {"id": "long", "n": {"type": "int", "part": "header"}}
    transforms = [{"type": "DropHeaders", "headers": ["other"]}]

    for keys in ({}, {"transforms": transforms}):
        outcomes = decode(pipeline(columns, **keys), (b"nojson", [("n", b"x")]))
        assert outcomes.dead.column("code").to_pylist() == ["INVALID_JSON"]


LARGE = """
import resource
from tests.unit.records.decoder.test_decode_headers import decode, pipeline
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
text, header = "string", {"type": "string", "part": "header"}
sent = [(b'{"id": 1}', [("trace", b"x" * (16 << 20))]), *[(b'{"id": 2}', [])] * 24_999]
columns = {"id": "long", "trace": header}
matches = {"type": "Filter", "when": {"predicate": "HeaderMatches", "name": "trace", "pattern": "y"}}
exploded = [{"type": "Explode", "field": "items"}]
lists = [(b'{"id": 1, "items": [1]}', [("trace", b"x" * (16 << 20))]), (b'{"id": 2, "items": [' + b"1," * 24_000 + b"1]}", [])]
fields = {"fields": {"id": "long", "items": "list<int>"}}
for file, records in (
    (pipeline(columns), sent),
    (pipeline(columns, value={"format": "json-envelope"}), sent),
    (pipeline({"id": "long"}, value={"fields": {"id": "long"}}, transforms=[matches]), sent),
    (pipeline({"id": "long", "items": "int"}, value=fields, transforms=exploded), lists),
):
    outcomes = decode(file, *records)
    print(sum(rows.num_rows for rows in outcomes.rows.values()), outcomes.dead.num_rows)
"""


def test_large_header_among_records_without_one_takes_no_more_memory_than_it_has() -> None:
    """One record may not make a step ask for its size times the records: that would end every run."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.splitlines() == ["25000 0", "0 25000", "25000 0", "24002 0"]


def test_columns_of_headers_stay_when_records_bring_new_ones() -> None:
    file = pipeline({"id": "long", **TYPE}, destination={"evolve": "full"})
    columns = {"shop.events": declared_columns(file.destinations[0])}
    decoder = Decoder(record_specs(file, columns), None, 7)

    plain = decoder.decode(records((b'{"id": 1}', [("ce_type", b"a")])))
    brought = decoder.decode(records((b'{"id": 1, "more": 2, "ce_type": "from the value"}', [])))

    assert cells(plain, "id", "ce_type") == [(1, "a")]
    (changes,) = brought.demands.values()
    assert "more" in str(changes)
    assert "ce_type" not in str(changes)


def test_tombstone_deletes_by_key_and_takes_its_place_from_a_header() -> None:
    columns = {
        "id": {"type": "long", "part": "key", "from": "value", "required": True},
        "name": "string",
        "at": {"type": "long", "part": "header", "required": True},
        "trace": {"type": "string", "part": "header", "required": True},
    }
    merged = {"write": "upsert", "identifier": ["id"], "order_by": "at"}
    file = pipeline(columns, destination=merged, key={"format": "long"})

    messages = [(b'{"name": "a"}', [("at", b"5"), ("trace", b"t")]), (None, [("at", b"6")]), (None, [("trace", b"t")])]
    outcomes = decode(file, *messages, key=(3).to_bytes(8, "big"))

    assert cells(outcomes, "id", "name", "at", "trace", "_frazil_op") == [
        (3, "a", 5, "t", "upsert"),
        (3, None, 6, None, "delete"),
    ]
    assert letters(outcomes) == [(2, "MISSING_REQUIRED", "header.at")]


def test_transforms_change_headers_before_columns_take_them() -> None:
    steps = [
        {"type": "HeaderFrom", "fields": ["kind"], "headers": ["ce_type"], "operation": "move"},
        {"type": "DropHeaders", "headers": ["gone"]},
    ]
    columns = {"id": "long", **TYPE, "gone": {"type": "string", "part": "header"}}
    file = pipeline(columns, transforms=steps, value={"fields": {"id": "long", "kind": "string"}})

    outcomes = decode(file, (b'{"id": 1, "kind": "new"}', [("ce_type", b"old"), ("gone", b"x")]))

    assert cells(outcomes, "id", "ce_type", "gone") == [(1, "new", None)]


def routed(route: dict[str, Any], **keys: Any) -> Pipeline:
    tables = [{"table": f"shop.{name}", "columns": {"id": "long", **TYPE}} for name in ("a", "b")]
    return pipeline({}, destinations=tables, route=route, **keys)


@pytest.mark.parametrize("value", [{}, LINE])
def test_header_routes_records(value: dict[str, Any]) -> None:
    static = {"part": "header", "field": "x.kind", "tables": {"shop.a": "a.*", "shop.b": "b|ab"}}
    raw = b"1" if value else b'{"id": 1}'
    kinds = [b"a", b"ab", b"b", b"c", b"\xff", None]

    outcomes = decode(
        routed({"static": static}, value=value),
        *((raw, [("x.kind", b"ignored"), ("x.kind", kind)]) for kind in kinds),
        (raw, [("kind", b"a")]),
    )

    assert cells(outcomes, "_kafka_offset", table="shop.a") == [(0,), (1,)]
    assert cells(outcomes, "_kafka_offset", table="shop.b") == [(1,), (2,)]
    assert letters(outcomes) == [(offset, "UNROUTED", "header.x.kind") for offset in (3, 4, 5, 6)]


def test_header_names_the_table() -> None:
    field = {"part": "header", "name": "table", "allow": [r"shop\..*"]}

    outcomes = decode(routed({"field": field}), (b'{"id": 1}', [("table", b"shop.b")]), (b"{", [("table", b"shop.a")]))

    assert cells(outcomes, "id", table="shop.b") == [(1,)]
    assert letters(outcomes)[0][:2] == (1, "INVALID_JSON")


def test_predicate_and_sql_read_headers() -> None:
    steps = [
        {"type": "Filter", "when": {"predicate": "HeaderMatches", "name": "env", "pattern": "test.*"}},
        {"type": "Sql", "select": "id, _kafka_headers['ce_type'] AS kind", "where": "_kafka_headers['skip'] IS NULL"},
    ]
    file = pipeline({"id": "long", "kind": "string"}, transforms=steps, value={"fields": {"id": "long"}})
    messages: list[tuple[bytes | None, Headers]] = [
        (b'{"id": 1}', [("env", b"prod"), ("ce_type", b"x"), ("ce_type", b"y")]),
        (b'{"id": 2}', [("env", b"test1")]),
        (b'{"id": 3}', [("env", b"test"), ("env", b"\xff"), ("ce_type", b"\xff")]),
        (b'{"id": 4}', [("skip", b"1")]),
        (b'{"id": 5}', []),
    ]

    outcomes = decode(file, *messages)

    assert cells(outcomes, "id", "kind") == [(1, "y"), (3, None), (5, None)]
    assert not outcomes.dead.num_rows


def test_secret_letters_show_the_names_of_declared_headers_only() -> None:
    file = pipeline({"id": "long", "n": {"type": "int", "part": "header", "from": "x.n"}})
    columns = {"shop.events": declared_columns(file.destinations[0])}
    decoder = Decoder(record_specs(file, columns), None, 7)

    dead = redacted(decoder.decode(records((b"{}", [("x.n", b"a")]))).dead, "redacted", decoder.declared)

    assert dead.column("path").to_pylist() == ["header.x.n"]
