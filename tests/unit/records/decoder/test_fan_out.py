"""One batch of records into several tables: each record has one outcome per table that it is routed to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import UnknownFields
from frazil.errors import Terminal
from frazil.records.casting.fitter import Fitter
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.route import FieldRoute, Otherwise, Route, StaticRoute, TopicRoute, route_texts
from frazil.records.model.column import ColumnSpec
from frazil.records.model.rows import Outcomes, TopicPartition
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.catalogue import transform
from tests.format_specs import format_spec
from tests.unit.records.kafka_batches import kafka_batch

NUMBERS = RecordSpec(pa.schema([pa.field("id", pa.int64()), pa.field("kind", pa.string())]))
TEXTS = RecordSpec(pa.schema([pa.field("id", pa.string()), pa.field("kind", pa.string())]))
NOTED = NUMBERS.columns.append(pa.field("note", pa.string()))
STRICT = RecordSpec(pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("kind", pa.string())]))
KIND = StaticRoute(("kind",), {"a.numbers": "order|refund", "a.texts": "order|text", "a.strict": "strict"})
SPECS = {"a.numbers": NUMBERS, "a.texts": TEXTS, "a.strict": STRICT}


def value(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def offsets(outcomes: Outcomes) -> dict[str, list[int]]:
    return {table: rows.column("_kafka_offset").to_pylist() for table, rows in outcomes.rows.items() if rows.num_rows}


def letters(outcomes: Outcomes) -> list[tuple[int, str | None, str]]:
    columns = (outcomes.dead.column(name).to_pylist() for name in ("offset", "destination", "code"))
    return list(zip(*columns, strict=True))


def decode(
    values: Sequence[bytes | None], route_by: Any = KIND, otherwise: Otherwise = "dead_letter", only: str | None = None
) -> Outcomes:
    outcomes = Decoder(SPECS, Route(route_by, otherwise) if route_by else None, 7).decode(kafka_batch(values), only)
    for table in outcomes.tables.values():
        assert table.routed == table.written + table.dead
    assert all(counts.is_complete for counts in outcomes.counts.values())
    return outcomes


def test_record_lands_in_exactly_its_tables() -> None:
    """A record goes to every table whose expression matches the whole value, and to no other."""
    outcomes = decode([value(id=1, kind="refund"), value(id=2, kind="strict"), value(id=3, kind="refunds")])

    assert offsets(outcomes) == {"a.numbers": [100], "a.strict": [101]}
    assert letters(outcomes) == [(102, None, "UNROUTED")]


def test_record_may_be_row_and_dead_letter_of_two_tables() -> None:
    """A record may be a row of one table and a dead letter of another."""
    outcomes = decode([value(id="x", kind="order"), value(id="7", kind="text")])

    assert offsets(outcomes) == {"a.texts": [100, 101]}
    assert letters(outcomes) == [(100, "a.numbers", "WRONG_TYPE")]
    counts = outcomes.counts[TopicPartition("orders", 0)]
    assert (counts.read, counts.written, sum(counts.dead.values())) == (2, 1, 1)
    assert (outcomes.tables["a.numbers"].dead, outcomes.tables["a.texts"].written, outcomes.whole_dead) == (1, 2, 0)


def test_each_table_counts_the_fields_it_leaves_out() -> None:
    """Each table counts what it leaves out of the records that landed there; the batch counts each record once."""
    specs = SPECS | {"a.numbers": RecordSpec(NOTED)}
    values = [
        value(id=1, kind="refund", note="n"),
        value(id="2", kind="text", note="n", tip=1),
        value(id="x", kind="order", note="n", tip=1),  # a letter of numbers, a row of texts
        value(id=3, kind="refund", tip=1),
        b"{broken",
    ]
    outcomes = Decoder(specs, Route(KIND, "dead_letter"), 7).decode(kafka_batch(values))

    unknown_fields = {table: table_outcome.unknown_fields for table, table_outcome in outcomes.tables.items()}
    assert unknown_fields["a.texts"] == UnknownFields(2, {"note": 2, "tip": 2})
    assert unknown_fields["a.numbers"] == UnknownFields(1, {"tip": 1})
    assert unknown_fields["a.strict"] == UnknownFields()
    assert outcomes.unknown_fields == UnknownFields(2, {"tip": 2, "note": 1})


def test_each_table_counts_typed_fields_it_leaves_out() -> None:
    """The same for values with a schema of their own: each table counts the fields that its columns leave out."""
    proto = 'syntax = "proto3"; message R { int64 id = 1; string kind = 2; string note = 3; }'
    how = format_spec("protobuf", schema=proto, message="R")
    specs = {"a.few": replace(NUMBERS, format=how), "a.all": RecordSpec(NOTED, format=how)}
    plain, noted, more = b"\x08\x01", b"\x08\x01\x1a\x01n", b"\x08\x01\x38\x05"  # the last one has a field 7

    outcomes = Decoder(specs, None, 7).decode(kafka_batch([plain, noted, more]))

    assert outcomes.tables["a.few"].unknown_fields == UnknownFields(2, {"note": 1, "#7": 1})
    assert outcomes.tables["a.all"].unknown_fields == UnknownFields(1, {"#7": 1})
    assert outcomes.unknown_fields == UnknownFields(2, {"note": 1, "#7": 1})


def test_undecodable_record_is_one_dead_letter_of_the_whole() -> None:
    """A record that can't be decoded is one letter, of the record as a whole, routed or not."""
    for route_by in (KIND, None, TopicRoute({"orders": "a.numbers"})):
        outcomes = decode([b"{broken", value(id=None, kind="order")], route_by)

        assert letters(outcomes)[0] == (100, None, "INVALID_JSON")
        assert outcomes.whole_dead == 1
        assert sum(table.routed for table in outcomes.tables.values()) > 0


@pytest.mark.parametrize("bad", [value(id=1), value(id=1, kind=None), value(id=1, kind="none"), value(id=1, kind="")])
@pytest.mark.parametrize("otherwise", ["dead_letter", "filter", "fail"])
def test_record_without_a_table_follows_its_policy(bad: bytes, otherwise: Otherwise) -> None:
    """No match and no value: a dead letter, a counted filter, or the end of the run, as the pipeline says."""
    values = [value(id=1, kind="refund"), bad]
    if otherwise == "fail":
        with pytest.raises(Terminal, match="topic orders, partition 0, offset 101"):
            decode(values, otherwise=otherwise)
        return
    outcomes = decode(values, otherwise=otherwise)

    counts = outcomes.counts[TopicPartition("orders", 0)]
    outcome = (counts.written, sum(counts.dead.values()), sum(counts.filtered.values()))
    assert outcome == ((1, 1, 0) if otherwise == "dead_letter" else (1, 0, 1))
    assert letters(outcomes) == ([(101, None, "UNROUTED")] if otherwise == "dead_letter" else [])


def test_error_of_a_run_shows_no_value_of_a_record() -> None:
    """A record that ends the run is told by its coordinates and the path, whatever dead letters may keep of values."""
    with pytest.raises(Terminal, match="offset 100: its field kind names no destination") as refused:
        decode([value(id=1, kind="4111-1111")], otherwise="fail")

    assert "4111" not in str(refused.value)


def test_route_reads_the_field_that_a_column_reads_where_names_ignore_case() -> None:
    """A typed value may have several fields whose names differ in case only: an exact match counts, else the last one."""
    column = ColumnSpec("kind", pa.string(), required=False)
    fitter = Fitter((column,), pa.schema([("kind", pa.string())]), case_insensitive=True)
    for names in (["Kind", "KIND"], ["kind", "KIND"]):
        value = pa.RecordBatch.from_pylist([dict(zip(names, "ab", strict=True))])
        read = fitter.fit(value).rows.column("kind")
        assert route_texts(value, ("kind",), case_insensitive=True).to_pylist() == read.to_pylist()


def test_topic_data_chooses_allowed_tables_only() -> None:
    """A field names its table only where the pipeline allows it; denied ones and others are not written."""
    route_by = FieldRoute(("kind",), allow=("a\\..*",), deny=(".*strict",))
    outcomes = decode(
        [value(id=1, kind=name) for name in ("a.numbers", "a.strict", "b.numbers", "A.numbers")], route_by
    )

    assert offsets(outcomes) == {"a.numbers": [100]}
    assert [letter[0] for letter in letters(outcomes)] == [101, 102, 103]


def test_route_without_allow_permits_every_destination_not_denied() -> None:
    """Without `allow` the field names any destination, but a denied one."""
    names = ("a.numbers", "a.strict", "b.numbers")
    outcomes = decode([value(id=1, kind=name) for name in names], FieldRoute(("kind",), allow=(), deny=(".*strict",)))

    assert offsets(outcomes) == {"a.numbers": [100]}
    assert [letter[0] for letter in letters(outcomes)] == [101, 102]


def test_daily_topic_finds_its_table() -> None:
    """A topic is renamed by full match; one that names a destination itself needs no rule."""
    route_by = TopicRoute({"events\\.\\d{8}": "a.texts"})
    batch = kafka_batch([value(id=1)] * 3, [("events.20261121", 0), ("a.numbers", 1), ("events.1", 0)])
    outcomes = Decoder(SPECS, Route(route_by), 7).decode(batch)

    assert offsets(outcomes) == {"a.numbers": [101]}
    assert letters(outcomes) == [(100, "a.texts", "WRONG_TYPE"), (102, None, "UNROUTED")]


def test_replayed_dead_letter_lands_in_its_own_table_only() -> None:
    """Asked for one table alone, the rows of the others are not made."""
    outcomes = decode([value(id=5, kind="order"), value(id=5, kind="strict")], only="a.numbers")

    assert offsets(outcomes) == {"a.numbers": [100]}
    assert outcomes.counts[TopicPartition("orders", 0)].filtered


def test_exploded_rows_are_routed_together_or_dead_whole() -> None:
    """Rows of one record may go to several tables; if one of them has none, the record is dead as a whole."""
    fields = pa.schema(
        [pa.field("lines", pa.list_(pa.struct([pa.field("id", pa.int64()), pa.field("kind", pa.string())])))]
    )
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("kind", pa.string())])
    steps = (transform("Explode", {"field": "lines"}, when=None, negate=False),)
    spec = RecordSpec(
        columns, fields=fields, transforms=steps, sources={"id": ("lines", "id"), "kind": ("lines", "kind")}
    )
    route = Route(StaticRoute(("lines", "kind"), {"a.one": "one", "a.two": "two"}))
    lines = [[("one", 1), ("two", 2), ("one", 3)], [("one", 4), ("none", 5)]]
    values = [value(lines=[{"id": number, "kind": kind} for kind, number in pairs]) for pairs in lines]

    outcomes = Decoder({"a.one": spec, "a.two": spec}, route, 7).decode(kafka_batch(values))

    ids = {table: rows.column("id").to_pylist() for table, rows in outcomes.rows.items()}
    assert ids == {"a.one": [1, 3], "a.two": [2]}
    assert letters(outcomes) == [(101, None, "UNROUTED")]


kinds = st.sampled_from(["order", "refund", "text", "strict", "none", None])
ids = st.one_of(st.none(), st.integers(0, 9), st.text(max_size=2), st.floats(allow_nan=False))
documents = st.one_of(
    st.builds(lambda kind, identifier: value(kind=kind, id=identifier), kinds, ids), st.binary(max_size=8), st.none()
)


@given(st.lists(documents, max_size=12), st.sampled_from([KIND, None]), st.sampled_from(["dead_letter", "filter"]))
def test_record_has_one_outcome_per_table(values: list[bytes | None], route_by: Any, otherwise: Otherwise) -> None:
    """Per table that a record is meant for: a row or a letter, and what a pipeline of that table alone would make of it."""
    outcomes = decode(values, route_by, otherwise)
    exact = Decoder(SPECS, Route(route_by, otherwise) if route_by else None, 7, blocks=False).decode(
        kafka_batch(values)
    )
    assert outcomes == exact or (offsets(outcomes), letters(outcomes)) == (offsets(exact), letters(exact))

    whole = {offset for offset, table, _ in letters(outcomes) if table is None}
    for table, spec in SPECS.items():
        alone = Decoder({table: spec}, None, 7).decode(kafka_batch(values))
        landed = offsets(outcomes).get(table, [])
        dead = {offset for offset, destination, _ in letters(outcomes) if destination == table}
        assert len(set(landed)) == len(landed)
        assert not set(landed) & (dead | whole)
        if route_by is None:
            assert landed == offsets(alone).get(table, [])
        assert set(landed) <= set(offsets(alone).get(table, []))


def test_dead_letters_of_many_tables_cost_what_they_are_not_what_the_tables_are() -> None:
    """A thousand tables of the same columns are fitted together; each visits its own dead letters only."""
    tables = {
        f"a.t{number}": RecordSpec(pa.schema([("id", pa.int64()), ("kind", pa.string())])) for number in range(1_000)
    }
    batch = kafka_batch([value(id="x", kind=f"a.t{number % 1_000}") for number in range(20_000)])
    decoder = Decoder(tables, Route(FieldRoute(("kind",), ())), 1)

    began = process_time()
    outcomes = decoder.decode(batch)

    assert process_time() - began < 2.5
    assert outcomes.dead.column("destination").to_pylist() == [f"a.t{number % 1_000}" for number in range(20_000)]
