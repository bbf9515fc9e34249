"""Keys beside values: whose key is whose, which columns take it, and what a broken one does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import FormatSpec, WriterSchema
from frazil.records.model.rows import KAFKA_SCHEMA, FilterReason, TopicPartition
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.records.transforms.kinds.conditions import WithKey
from frazil.records.transforms.kinds.field_sets import ExtractField, ValueToKey
from frazil.records.transforms.kinds.field_values import Cast
from frazil.records.transforms.kinds.nested import Explode
from tests.format_specs import format_spec
from tests.unit.records.kafka_batches import OneTable, OneTableOutcomes

COLUMNS = pa.schema([("id", pa.int64()), ("customer", pa.int64())])
BESIDE_KEY = RecordSpec(
    COLUMNS, key=format_spec("long"), of_key=frozenset({"customer"}), sources={"customer": ("value",)}
)
JSON_KEY = replace(
    BESIDE_KEY, key=FormatSpec(), key_fields=pa.schema([("no", pa.int64())]), sources={"customer": ("no",)}
)


@dataclass(frozen=True)
class Writers:
    """A registry of Avro records: id 1 has the field `no`, id 2 has `no` and `more`."""

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return one of both, or None."""
        fields = {1: ["no"], 2: ["no", "more"]}.get(schema_id if isinstance(schema_id, int) else 0)
        declared = [{"name": name, "type": "long"} for name in fields or ()]
        text = json.dumps({"type": "record", "name": "K", "fields": declared})
        return WriterSchema("AVRO", text) if fields else None


AVRO_KEY = replace(JSON_KEY, key=format_spec("avro", Writers()), key_fields=None)


def records(*messages: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    rows = [
        {"topic": "t", "partition": 0, "offset": index, "timestamp": index, "key": key, "value": value}
        for index, (key, value) in enumerate(messages)
    ]
    return pa.RecordBatch.from_pylist(rows, KAFKA_SCHEMA)


def long(number: int) -> bytes:
    return number.to_bytes(8, "big")


def avro(schema_id: int, *numbers: int) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + bytes(2 * number for number in numbers)


def order(number: int) -> bytes:
    return b'{"id": %d}' % number


def rows(outcomes: OneTableOutcomes) -> list[tuple[Any, ...]]:
    return [(row["_kafka_offset"], row["id"], row["customer"]) for row in outcomes.rows.to_pylist()]


def letters(outcomes: OneTableOutcomes) -> list[tuple[int, str, str | None]]:
    return [(letter["offset"], letter["code"], letter["path"]) for letter in outcomes.dead.to_pylist()]


@pytest.mark.parametrize(
    ("spec", "good", "broken"),
    [
        (BESIDE_KEY, long(5), b"5"),
        (JSON_KEY, b'{"no": 5}', b"no"),
        (AVRO_KEY, avro(1, 5), avro(9, 5)),
    ],
    ids=["long", "json", "avro"],
)
@pytest.mark.parametrize("value", ["json", "long"])
def test_each_row_has_the_key_of_its_own_record(spec: RecordSpec, good: bytes, broken: bytes, value: str) -> None:
    """Broken keys, null keys, tombstones and broken values in between: each row has the key of its own record."""
    encode = {"json": order, "long": long}[value]
    if value == "long":
        spec = replace(spec, format=format_spec("long"), sources={**spec.sources, "id": ("value",)})
    messages = [
        (broken, encode(0)),
        (good, encode(1)),
        (None, encode(2)),
        (good, None),
        (good, b"{"),
        (broken, None),
        (good, encode(6)),
    ]

    outcomes = OneTable(spec, 1).decode(records(*messages))

    assert rows(outcomes) == [(1, 1, 5), (2, 2, None), (6, 6, 5)]
    assert [code for _, code, _ in letters(outcomes)] == ["INVALID_KEY", letters(outcomes)[1][1]]
    assert [offset for offset, _, _ in letters(outcomes)] == [0, 4]
    assert outcomes.counts[TopicPartition("t", 0)].filtered == {FilterReason.TOMBSTONE: 2}
    assert outcomes.counts[TopicPartition("t", 0)].is_complete


def test_dead_letter_of_a_key_names_the_key() -> None:
    """Code and path say that it is the key, the message why."""
    outcomes = OneTable(AVRO_KEY, 1).decode(records((avro(9, 5), order(1))))

    (letter,) = outcomes.dead.to_pylist()
    assert (letter["code"], letter["stage"], letter["path"]) == ("INVALID_KEY", "decode", "key")
    assert letter["message"] == "key: UNKNOWN_SCHEMA: expected a registered schema, found id 9"


def test_key_that_does_not_fit_names_the_key() -> None:
    """The reason is the one a value would have, its path begins at the key; the other columns don't matter."""
    small = replace(JSON_KEY, columns=pa.schema([("id", pa.int64()), ("customer", pa.int32())]))

    outcomes = OneTable(small, 1).decode(records((b'{"no": 4294967296}', order(1)), (b'{"no": 2}', order(2))))

    assert letters(outcomes) == [(0, "OUT_OF_RANGE", "key.no")]
    assert rows(outcomes) == [(1, 2, 2)]


@pytest.mark.parametrize(
    ("nullable", "defaults", "expected"),
    [(True, {}, None), (True, {"customer": 7}, None), (False, {"customer": 7}, 7), (False, {}, "MISSING_REQUIRED")],
)
@pytest.mark.parametrize("spec", [BESIDE_KEY, JSON_KEY, AVRO_KEY], ids=["long", "json", "avro"])
def test_null_key_is_a_missing_one(spec: RecordSpec, nullable: bool, defaults: Any, expected: object) -> None:
    """Its fields are null, whatever the format: a default is for required columns only."""
    columns = pa.schema([COLUMNS.field(0), pa.field("customer", pa.int64(), nullable=nullable)])

    outcomes = OneTable(replace(spec, columns=columns, defaults=defaults), 1).decode(records((None, order(1))))

    outcomes_seen = [row[2] for row in rows(outcomes)] + [code for _, code, _ in letters(outcomes)]
    assert outcomes_seen == [expected]


def test_whole_key_of_none_is_an_empty_object() -> None:
    """`from: []` takes the key as JSON text; of no key it is null."""
    columns = pa.schema([("id", pa.int64()), ("customer", pa.string())])
    spec = replace(AVRO_KEY, columns=columns, sources={"customer": ()})

    outcomes = OneTable(spec, 1).decode(records((avro(1, 5), order(1)), (None, order(2)), (avro(2, 6, 7), order(3))))

    assert rows(outcomes) == [(0, 1, '{"no":5}'), (1, 2, None), (2, 3, '{"no":6,"more":7}')]


def test_variant_column_takes_the_whole_key() -> None:
    """Values are decoded without the columns of keys, and without the options of these."""
    columns = pa.schema([("id", pa.int64()), ("customer", pa.string())])
    spec = replace(JSON_KEY, columns=columns, sources={"customer": ()}, variants=frozenset({"customer"}))

    outcomes = OneTable(spec, 1).decode(records((b'{"no":1}', b'{"id":2}')))

    assert rows(outcomes) == [(0, 2, '{"no":1}')]


def test_json_values_keep_their_options_beside_a_key() -> None:
    """Sources, rescued fields and whole values are as they are without keys."""
    columns = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("_rescued", pa.string())])
    sources = {"id": ("order", "id"), "customer": ("no",)}
    spec = replace(JSON_KEY, columns=columns, sources=sources, unknown_fields="rescue")

    outcomes = OneTable(spec, 1).decode(records((b'{"no": 3}', b'{"order": {"id": 1}, "more": true}')))

    (row,) = outcomes.rows.to_pylist()
    assert (row["id"], row["customer"], row["_rescued"]) == (1, 3, '{"more":true}')


def test_fields_of_key_and_value_are_separate() -> None:
    """Names of both halves don't meet: neither as columns, nor as unknown fields."""
    spec = replace(JSON_KEY, unknown_fields="fail", sources={"customer": ("id",)}, key_fields=COLUMNS)

    outcomes = OneTable(spec, 1).decode(records((b'{"id": 8, "customer": 9}', order(1))))

    assert (rows(outcomes), letters(outcomes)) == ([(0, 1, 8)], [])


def test_exploded_rows_keep_their_key() -> None:
    """Each row of a record has the key of the record, changed by transforms, also where some have no key."""
    spec = replace(
        JSON_KEY,
        fields=pa.schema([("id", pa.list_(pa.int64()))]),
        key_fields=pa.schema([("at", pa.struct([("no", pa.string())]))]),
        transforms=(
            WithKey(ExtractField("at", target="key")),
            WithKey(Cast({"no": "int64"}, target="key")),
            Explode("id"),
        ),
    )
    messages = [
        (b'{"at": {"no": "4"}}', b'{"id": [1, 2]}'),
        (None, b'{"id": [3]}'),
        (b'{"at": {"no": "x"}}', b'{"id": [4]}'),
        (b'{"at": {"no": "5"}}', b'{"id": [5]}'),
    ]

    outcomes = OneTable(spec, 1).decode(records(*messages))

    assert rows(outcomes) == [(0, 1, 4), (0, 2, 4), (1, 3, None), (3, 5, 5)]
    assert letters(outcomes) == [(2, "TRANSFORM_FAILED", "no")]


def test_key_made_of_the_value_is_available() -> None:
    """ValueToKey makes keys without any being decoded."""
    spec = replace(BESIDE_KEY, key=None, transforms=(ValueToKey(("id",)),), sources={"customer": ("id",)})

    assert rows(OneTable(spec, 1).decode(records((b"?", order(4))))) == [(0, 4, 4)]


KEYS = st.sampled_from([None, b"", b"x", avro(1, 5), avro(2, 6, 7), avro(2, 6), avro(9, 1)])
VALUES = st.sampled_from([None, b"", b"{", order(1), avro(1, 5), avro(2, 6, 7), avro(9, 1)])


@given(st.lists(st.tuples(KEYS, VALUES), max_size=12), st.sampled_from(["json", "avro"]))
def test_outcome_of_a_keyed_record_does_not_depend_on_its_neighbours(
    messages: list[tuple[bytes | None, bytes | None]], value: str
) -> None:
    """Alone or among others of any kind, a record has one outcome, and the same."""
    spec = AVRO_KEY if value == "json" else replace(AVRO_KEY, format=format_spec("avro", Writers()))
    if value == "avro":
        spec = replace(spec, sources={**spec.sources, "id": ("no",)})
    batch = records(*messages)

    whole = OneTable(spec, 1).decode(batch)
    alone = [OneTable(spec, 1).decode(batch.slice(number, 1)) for number in range(len(messages))]

    assert rows(whole) == [row for one in alone for row in rows(one)]
    assert letters(whole) == [letter for one in alone for letter in letters(one)]
    assert all(counts.is_complete for counts in whole.counts.values())


def test_fingerprint_includes_keys_and_record_limits() -> None:
    """They decide outcomes, as the version of the rules does; limits of batches do not."""
    parts: dict[str, Any] = {
        "name": "orders",
        "source": {"topics": ["orders"]},
        "destinations": [{"table": "shop.orders", "columns": {"id": "long"}}],
    }

    def fingerprint(**more: Sequence[Any] | dict[str, Any]) -> str:
        return Pipeline.model_validate(parts | more).outcome_fingerprint

    assert fingerprint(limits={"max_records": 10}) == fingerprint()
    assert fingerprint(limits={"max_record_bytes": 10_000}) != fingerprint()
    assert len({fingerprint(), fingerprint(key={"format": "long"}), fingerprint(key={"format": "int"})}) == 3


MISSING_KEY, BROKEN = (DeadCode.MISSING_REQUIRED.value, "key.no"), (DeadCode.INVALID_KEY.value, "key")


@pytest.mark.parametrize("transforms", [(), (Cast({"id": "int64"}),)], ids=["direct", "transforms"])
@pytest.mark.parametrize(
    ("required", "default", "lacking"),
    [(False, {}, None), (False, {"customer": 7}, None), (True, {}, MISSING_KEY), (True, {"customer": 7}, 7)],
    ids=["optional", "optional, default", "required", "required, default"],
)
def test_a_default_stands_for_a_field_that_a_json_key_may_lack(
    transforms: tuple[Cast, ...], required: bool, default: dict[str, int], lacking: Any
) -> None:
    """Fields of JSON keys are declared, so one that lacks is null, as in no key at all: a default is for required columns."""
    columns = pa.schema([("id", pa.int64()), pa.field("customer", pa.int64(), nullable=not required)])
    fields = pa.schema([("id", pa.int64())]) if transforms else None
    spec = replace(JSON_KEY, columns=columns, defaults=default, transforms=transforms, fields=fields)
    expected = {b'{"no":1}': 1, b"{}": lacking, b'{"no":null}': lacking, None: lacking}
    expected |= dict.fromkeys((b"null", b"", b"[]", b"{"), BROKEN)

    done = OneTable(spec, 1).decode(records(*((key, order(1)) for key in expected)))

    customers: dict[int, Any] = {row["_kafka_offset"]: row["customer"] for row in done.rows.to_pylist()}
    customers |= {row["offset"]: (row["code"], row["path"]) for row in done.dead.to_pylist()}
    assert [customers[number] for number in range(len(expected))] == list(expected.values())


OTHER_KEY = replace(
    RecordSpec(pa.schema([("id", pa.int64()), ("name", pa.string())])),
    key=format_spec("long"),
    of_key=frozenset({"id"}),
    sources={"id": ("value",)},
)
"""The column `id` takes the key; values have a field `id`, too."""

RESCUING = replace(
    OTHER_KEY, columns=OTHER_KEY.columns.append(pa.field("_rescued", pa.string())), unknown_fields="rescue"
)
EVOLVING = replace(
    OTHER_KEY, evolution=Evolution(reserved=frozenset({"id"})), columns=RESCUING.columns, rescued_column="_rescued"
)
FOLDED = replace(RESCUING, field_names="case_insensitive")


@pytest.mark.parametrize(
    "spec",
    [OTHER_KEY, replace(OTHER_KEY, unknown_fields="fail"), RESCUING, EVOLVING, FOLDED],
    ids=["ignore", "fail", "rescue", "evolve", "folded"],
)
@pytest.mark.parametrize("is_shaped", [False, True], ids=["direct", "shaped"])
@pytest.mark.parametrize("blocks", [True, False])
def test_field_of_the_value_with_the_name_of_a_key_column_is_not_unknown(
    spec: RecordSpec, is_shaped: bool, blocks: bool
) -> None:
    """The column has the key's value; the value's own field is neither rescued nor refused, counted or asked for."""
    fields = pa.schema([("id", pa.int64()), ("name", pa.string())])
    shaped = replace(
        spec, transforms=(WithKey(Cast({"value": "int64"})),), fields=fields, infers=spec.evolution is not None
    )
    messages = [
        (long(5), b'{"id": 4, "name": "a"}'),
        (long(6), b'{"name": "b"}'),
        (long(7), b'{"id": 7, "name": null}'),
    ]

    outcomes = OneTable(shaped if is_shaped else spec, 1, blocks=blocks).decode(records(*messages))

    assert not outcomes.demands
    assert [(row["id"], row["name"], row.get("_rescued")) for row in outcomes.rows.to_pylist()] == [
        (5, "a", None),
        (6, "b", None),
        (7, None, None),
    ]
    assert outcomes.unknown_fields.records == 0
