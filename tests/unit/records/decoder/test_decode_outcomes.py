"""Rows, dead letters and counts of a batch."""

from __future__ import annotations

import pickle
import random
from typing import Literal

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.redaction import Payload, has_record, redacted
from frazil.records.model.dead_letter import DeadCode, Stage
from frazil.records.model.rows import (
    BAD_HEADERS,
    DEAD_SCHEMA,
    KAFKA_SCHEMA,
    NOT_UNPACKED,
    UNREAD_BYTES,
    FilterReason,
    PartitionCounts,
    unread_headers,
    with_python_times,
)
from frazil.records.model.spec import KafkaColumns, RecordSpec
from tests.unit.records.kafka_batches import BATCH_NUMBER, OneTable, decode_both, kafka_batch

A = pa.schema([pa.field("a", pa.int32(), nullable=False)])


def test_every_row_names_the_record_it_came_from_and_its_batch() -> None:
    """Replay and verification find rows by these columns."""
    outcomes = decode_both(RecordSpec(A), kafka_batch([b"", b'{"a":5}'], [("t", 3), ("t", 4)]))
    (row,) = outcomes.rows.to_pylist()
    assert row.pop("_kafka_timestamp").microsecond == 1
    assert row == {
        "a": 5,
        "_kafka_topic": "t",
        "_kafka_partition": 4,
        "_kafka_offset": 101,
        "_frazil_batch": BATCH_NUMBER,
    }


def test_dead_letter_keeps_the_whole_record() -> None:
    """Key, value, headers and coordinates are there, bytes untouched, for a later repair."""
    batch = kafka_batch([b'{"a":1}', b'\x00{"a":'])
    (letter,) = decode_both(RecordSpec(A), batch).dead.to_pylist()
    record = batch.slice(1).to_pylist()[0]
    shared_names = set(DEAD_SCHEMA.names) & set(KAFKA_SCHEMA.names)
    assert {name: letter[name] for name in shared_names} == {name: record[name] for name in shared_names}
    assert shared_names == {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (b'{"a":"abc"}', "a", 'a: expected int, found text "abc"'),
        (b"{}", "a", "a: expected int, found null or no such field"),
        (b'{"a":1,"n":[{"m":{"k":1.5}}]}', 'n[0].m["k"]', "found number 1.5, which is no integer"),
        (b'{"a":{"b":[1.50,null]}}', "a", 'found object {"b":[1.50,null]}'),
        (b'{"a":"' + b"x" * 1000 + b'"}', "a", 'found text "' + "x" * 79 + "…"),
        (b'{"a":"\\ud800"}', "a", 'found text "\\ud800"'),
    ],
)
def test_message_names_place_expected_and_actual_value(value: bytes, path: str, message: str) -> None:
    """Whoever reads the dead letter can fix the producer without decoding its bytes."""
    inner = pa.struct([pa.field("m", pa.map_(pa.string(), pa.int32()))])
    spec = RecordSpec(A.append(pa.field("n", pa.list_(inner))))
    (letter,) = decode_both(spec, kafka_batch([value])).dead.to_pylist()
    assert letter["path"] == path
    assert message in letter["message"]
    assert len(letter["message"]) < 150


def test_tombstones_are_filtered_and_counted() -> None:
    """A record without value is neither a row nor a dead letter of an append, and not lost."""
    outcomes = decode_both(RecordSpec(A), kafka_batch([None, b'{"a":1}', None]))
    assert (outcomes.rows.num_rows, outcomes.dead.num_rows) == (1, 0)
    (counts,) = outcomes.counts.values()
    assert counts == PartitionCounts(3, 1, {}, {FilterReason.TOMBSTONE: 2})


def test_tombstones_are_dead_letters_where_the_pipeline_says_so() -> None:
    """The other policy keeps them, with a null value."""
    spec = RecordSpec(A, tombstone="dead_letter")
    outcomes = decode_both(spec, kafka_batch([b'{"a":1}', None]))
    assert outcomes.dead.select(["code", "value"]).to_pylist() == [{"code": "NULL_VALUE", "value": None}]


def test_rows_and_dead_letters_stay_in_the_order_of_offsets() -> None:
    """Block rows, exact rows and dead letters are decided in turns and must not show it."""
    random.seed(3)
    kinds = [b'{"a":%d}', b'{"a":%d.0}', b'{"a":"%d"}', b'{"a":%d,}', b'{"a":%d,"a":1}']
    values = [random.choice(kinds) % index for index in range(500)]
    outcomes = decode_both(RecordSpec(A), kafka_batch(values))
    for offsets in (outcomes.rows.column("_kafka_offset"), outcomes.dead.column("offset")):
        assert len(offsets) > 50
        assert offsets.to_pylist() == sorted(set(offsets.to_pylist()))


def test_outcomes_are_counted_per_partition_of_each_topic() -> None:
    """The audit compares each partition's records with its offsets; a total would hide a swap."""
    values = [b'{"a":1}', b"", None, b'{"a":2}', b"{}", b"", b"[]"]
    sources = [("t", 0), ("t", 0), ("t", 1), ("u", 0), ("u", 0), ("u", 0), ("t", 1)]
    assert decode_both(RecordSpec(A), kafka_batch(values, sources)).counts == {
        ("t", 0): PartitionCounts(2, 1, {DeadCode.EMPTY_VALUE: 1}),
        ("t", 1): PartitionCounts(2, 0, {DeadCode.NOT_AN_OBJECT: 1}, {FilterReason.TOMBSTONE: 1}),
        ("u", 0): PartitionCounts(3, 1, {DeadCode.MISSING_REQUIRED: 1, DeadCode.EMPTY_VALUE: 1}),
    }


def test_empty_batch_has_empty_outcomes_of_the_right_shape() -> None:
    """Spark hands over empty batches; their schema is still written to files."""
    outcomes = decode_both(RecordSpec(A), kafka_batch([]))
    assert (outcomes.rows.num_rows, outcomes.dead.num_rows, outcomes.counts) == (0, 0, {})


def test_sliced_batch_decodes_its_own_records_only() -> None:
    """An Arrow slice shares its neighbours' buffers."""
    batch = kafka_batch([b'{"a":1}', b'{"a":2}', b'{"a":3.0}', b"", b'{"a":4}', b'{"a":5}'])
    outcomes = decode_both(RecordSpec(A), batch.slice(1, 4))
    assert outcomes.rows.column("a").to_pylist() == [2, 3, 4]
    assert outcomes.rows.column("_kafka_offset").to_pylist() == [101, 102, 104]


def test_columns_without_kafka_columns_are_exactly_the_declared_ones() -> None:
    """A table of someone else's may not have them."""
    spec = RecordSpec(A, kafka_columns=None)
    assert decode_both(spec, kafka_batch([b'{"a":1}'])).rows.to_pylist() == [{"a": 1}]


def test_field_metadata_of_the_table_survives() -> None:
    """Iceberg finds columns by the field ids in it, nested ones too."""
    ids = [{"PARQUET:field_id": str(number)} for number in range(4)]
    inner = [pa.field("y", pa.int32(), metadata=ids[1]), pa.field("z", pa.uuid(), metadata=ids[2])]
    nested = pa.field("x", pa.struct(inner), metadata=ids[0])
    spec = RecordSpec(pa.schema([nested, pa.field("w", pa.int32(), metadata=ids[3])]))
    rows = decode_both(spec, kafka_batch([b'{"x":{"y":1},"w":1}', b'{"x":{"y":1.0}}'])).rows
    assert rows.schema.field("x").equals(nested, check_metadata=True)


@pytest.mark.parametrize(
    ("nullable", "default", "value", "expected"),
    [
        (True, 9, b"{}", 9),
        (True, 9, b'{"a":null}', None),
        (True, 9, b'{"a":1}', 1),
        (False, 9, b"{}", 9),
        (False, 9, b'{"a":null}', 9),
        (True, None, b"{}", None),
    ],
)
def test_default_stands_for_a_missing_field(*, nullable: bool, default: object, value: bytes, expected: object) -> None:
    """Null is a value of its own in an optional column, and nothing in a required one."""
    spec = RecordSpec(pa.schema([pa.field("a", pa.int32(), nullable=nullable)]), defaults={"a": default})
    assert decode_both(spec, kafka_batch([value])).rows.column("a").to_pylist() == [expected]


@pytest.mark.parametrize("default", ["9", 1.5, 2**40, [1]], ids=str)
def test_default_that_does_not_fit_is_refused_before_any_record(default: object) -> None:
    """The pipeline is wrong, not its records."""
    with pytest.raises(Terminal, match="column a: the default does not fit"):
        OneTable(RecordSpec(A, defaults={"a": default}), 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"x":{"y":3},"a":4}', 3),
        (b'{"x":{},"a":4}', "MISSING_REQUIRED"),
        (b'{"x":null}', "MISSING_REQUIRED"),
        (b'{"x":[3]}', "WRONG_TYPE"),
        (b'{"x":{"y":"3"}}', "WRONG_TYPE"),
    ],
)
def test_column_is_taken_from_its_source(value: bytes, expected: object) -> None:
    """A column need not be named as its field, nor stand at the root."""
    spec = RecordSpec(A, sources={"a": ("x", "y")})
    outcomes = decode_both(spec, kafka_batch([value]))
    if outcomes.rows.num_rows:
        assert outcomes.rows.column("a")[0].as_py() == expected
    else:
        assert outcomes.dead.column("code")[0].as_py() == expected
        assert outcomes.dead.column("path")[0].as_py() in {"x", "x.y"}


def test_renamed_column_is_read_as_block_too() -> None:
    """The block parser must look for the field's name, not the column's."""
    spec = RecordSpec(A, sources={"a": ("store id",)})
    batch = kafka_batch([b'{"store id":%d,"a":0}' % number for number in range(20)])
    assert decode_both(spec, batch).rows.column("a").to_pylist() == list(range(20))


@pytest.mark.parametrize(
    "arguments",
    [
        {"columns": pa.schema([])},
        {"columns": pa.schema([pa.field("a", pa.int32())] * 2)},
        {"columns": pa.schema([pa.field("_frazil_batch", pa.int32())])},
        {"columns": A, "kafka_columns": KafkaColumns(topic="x", offset="x")},
        {"columns": A, "defaults": {"b": 1}},
        {"columns": A, "sources": {"b": ("a",)}},
        {"columns": A, "sources": {"a": ()}},
    ],
    ids=["none", "twice", "taken", "added twice", "default", "source", "no source"],
)
def test_impossible_shape_is_refused(arguments: dict[str, object]) -> None:
    """A mistake of the pipeline file is found before a record is read."""
    with pytest.raises(Terminal, match="record shape"):
        RecordSpec(**arguments)  # type: ignore[arg-type]


def test_spec_travels_to_executors() -> None:
    """Spark pickles what its workers need."""
    spec = RecordSpec(A, defaults={"a": 1}, sources={"a": ("b",)})
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301 - our own bytes


def test_arrow_types_of_another_engine_are_accepted() -> None:
    """Spark's batches have nullable fields, may have large types, and more columns."""
    batch = kafka_batch([b'{"a":1}'])
    fields = [field.with_nullable(True) for field in KAFKA_SCHEMA]  # noqa: FBT003
    fields[6] = pa.field("value", pa.large_binary())
    foreign = batch.cast(pa.schema(fields)).append_column("more", pa.array([1]))
    assert decode_both(RecordSpec(A), foreign).rows.num_rows == 1


def test_batch_without_a_needed_column_is_refused() -> None:
    """A reader that forgets a column must not land nulls."""
    with pytest.raises(Terminal, match="expected topic string"):
        OneTable(RecordSpec(A), 1).decode(kafka_batch([b""]).drop_columns(["offset"]))


@pytest.mark.parametrize("code", DeadCode)
def test_every_code_says_what_it_means_and_what_to_do(code: DeadCode) -> None:
    """Codes are read by people who did not write the decoder."""
    assert code.value == code.name
    assert isinstance(code.stage, Stage)
    assert code.meaning.endswith(".")
    assert code.remedy.endswith(".")


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("payload", ["full", "redacted", "none"])
@pytest.mark.parametrize("tombstone", ["filter", "dead_letter"])
@pytest.mark.parametrize("tables", [1, 2])
def test_record_above_the_size_limit_is_a_dead_letter_with_its_size(
    blocks: bool,
    payload: Payload,
    tombstone: Literal["filter", "dead_letter"],
    tables: int,
) -> None:
    """It is no tombstone; one that can't be unpacked has coordinates only. A letter without its record is never tried again."""
    values = [b'{"a":1}', None, None, None, b'{"a":2}']
    records = kafka_batch(values).append_column(UNREAD_BYTES, pa.array([None, 99, NOT_UNPACKED, None, None]))
    headers = [[], unread_headers(99), unread_headers(NOT_UNPACKED), [], []]
    records = records.set_column(7, "headers", pa.array(headers, KAFKA_SCHEMA.field("headers").type))
    records = records.set_column(5, "key", pa.nulls(5, pa.binary()))
    specs = {f"t.{number}": RecordSpec(A, tombstone=tombstone) for number in range(tables)}

    outcomes = Decoder(specs, None, BATCH_NUMBER, blocks=blocks).decode(records)

    letters = redacted(outcomes.dead, payload)
    letters_by_offset = {letter["offset"]: letter for letter in letters.to_pylist()}
    assert letters_by_offset[101]["code"] == "RECORD_TOO_LARGE"
    assert letters_by_offset[102]["code"] == "UNREADABLE_BATCH"
    assert (103 in letters_by_offset) is (tombstone == "dead_letter")
    assert len(outcomes.rows["t.0"]) == 2
    sizes = [] if payload == "none" else [{"key": "frazil.bytes", "value": b"99"}]
    assert letters_by_offset[101]["headers"] == [{"key": "frazil.payload", "value": b"none"}, *sizes]
    assert letters_by_offset[102]["headers"] == [{"key": "frazil.payload", "value": b"none"}]
    assert not any(has_record(letters).to_pylist()[:2])
    (counts,) = outcomes.counts.values()
    assert counts.is_complete
    assert counts.read == 5


@pytest.mark.parametrize("value", [b'{"a":1}', b"", None])
def test_record_with_unreadable_headers_keeps_key_and_value_in_dead_letter(value: bytes | None) -> None:
    """It has one outcome, whatever its value would be."""
    records = kafka_batch([value]).append_column(UNREAD_BYTES, pa.array([BAD_HEADERS], pa.int64()))

    outcomes = OneTable(RecordSpec(A, empty_value="filter"), BATCH_NUMBER).decode(records)

    assert outcomes.dead.select(["code", "key", "value"]).to_pylist() == [
        {"code": "INVALID_HEADERS", "key": b"key-0", "value": value}
    ]
    assert all(counts.is_complete for counts in outcomes.counts.values())


def test_dead_letter_with_a_time_beyond_year_9999_is_named() -> None:
    """Python knows no such instant; Kafka and the table do."""
    records = kafka_batch([b"broken", b'{"a":1}'])
    late = pa.array([9_000_000_000_000_000_000, 1_000_000], pa.int64()).cast(KAFKA_SCHEMA.field("timestamp").type)
    letters = OneTable(RecordSpec(A), BATCH_NUMBER).decode(records.set_column(3, "timestamp", late)).dead

    (letter,) = with_python_times(letters).to_pylist()

    assert letter["timestamp"] is None
    assert with_python_times(records.set_column(3, "timestamp", late)).to_pylist()[1]["timestamp"].second == 1
