"""Changes whose rows bring columns to the table that they are merged into."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from frazil.pipeline.models.pipeline_file import Pipeline
from tests.unit.records.cdc.growing import grown
from tests.unit.records.cdc.landing import TABLE, filtered, ops_of, pipeline, refused
from tests.unit.records.cdc.test_debezium import event
from tests.unit.records.cdc.test_streams import ENVELOPE, IMAGES, OP_COLUMN, canal, dms, maxwell

KEY: Mapping[str, Any] = {"id": {"type": "long", "required": True}}
NEW = {"id": 1, "name": "Ann", "age": 7}
OLD = {"id": 1, "gone": True}
DEBEZIUM = {"format": "debezium"}


def changes_asked(growth: Any) -> list[str]:
    """The schema changes of the table."""
    return [str(change) for changes in growth.rounds for change in changes[TABLE]]


@pytest.mark.parametrize(
    ("changes", "document", "deletion"),
    [
        ("debezium", event("c", None, NEW), event("d", OLD, None)),
        ("debezium", event("u", OLD, NEW), event("d", OLD, None)),
        ("dms", dms("update", NEW, **{"before-image": OLD}), dms("delete", OLD)),
        ("maxwell", maxwell("update", NEW, old={"gone": True}), maxwell("delete", OLD)),
        (OP_COLUMN, {"op": "I", **NEW}, {"op": "D", **OLD}),
        (
            IMAGES,
            {"meta": {"op": "U"}, "data": {"after": NEW, "before": OLD}},
            {"meta": {"op": "D"}, "data": {"before": OLD}},
        ),
        (ENVELOPE, {"insert": NEW}, {"delete": OLD}),
    ],
    ids=str,
)
def test_deleted_rows_bring_only_their_key_columns(
    changes: Any, document: dict[str, Any], deletion: dict[str, Any]
) -> None:
    """Inserts and updates bring columns; a deleted row, and a row before a change, only those of its key."""
    format_ = {"format": changes} if isinstance(changes, str) else changes
    declared = pipeline(changes=format_, columns=KEY, evolve="widen")

    growth = grown(declared, [document, deletion])

    assert sorted(changes_asked(growth)) == ["add age long", "add name string"]
    assert ops_of(growth.outcomes, "id", "name", "age")[-2:] == [("upsert", 1, "Ann", 7), ("delete", 1, None, None)]
    assert not refused(growth.outcomes)
    assert not grown(declared, [deletion]).rounds


def test_declared_fields_of_a_row_get_columns() -> None:
    """If the file declares fields, the columns get these types; a delete alone still brings none."""
    row = "struct<id: long, name: string, price: decimal(9,2)>"
    fields = {"format": "json", "fields": {"op": "string", "before": row, "after": row}}
    declared = pipeline({"value": fields}, changes=DEBEZIUM, columns=KEY, evolve="widen")

    growth = grown(declared, [event("c", None, {"id": 1, "price": 1.50}), event("d", {"id": 2, "price": 9}, None)])

    assert changes_asked(growth) == ["add name string", "add price decimal(9,2)"]
    assert ops_of(growth.outcomes, "id", "name")[-1] == ("delete", 2, None)
    assert not grown(declared, [event("d", {"id": 2}, None)]).rounds


def test_old_row_image_does_not_make_a_change_unfit() -> None:
    """Of the row before a change only the key matters: the other columns may have had other types then."""
    declared = pipeline(changes=DEBEZIUM, columns={**KEY, "price": "long"}, evolve="widen")
    documents = [event("u", {"id": 1, "price": "x"}, {"id": 2, "price": 5}), event("d", {"id": 3, "price": 1.5}, None)]

    growth = grown(declared, documents)

    assert ops_of(growth.outcomes, "id", "price") == [("delete", 1, None), ("upsert", 2, 5), ("delete", 3, None)]
    assert (growth.rounds, refused(growth.outcomes)) == ([], [])


def test_unchanged_value_is_kept_or_its_record_is_refused() -> None:
    """A value that Postgres did not send again comes from the row before, else the record is refused; it shows no type."""
    left_out = "__debezium_unavailable_value"
    declared = pipeline(
        changes=DEBEZIUM, columns={**KEY, "note": "string"}, evolve="widen", on_incompatible="variant_column"
    )
    documents = [
        event("u", {"id": 1, "note": "old"}, {"id": 1, "note": left_out, "new": 1}),
        event("u", {"id": 2}, {"id": 2, "note": left_out}),
        event("u", {"id": 3}, {"id": 3, "note": 7}),
    ]

    growth = grown(declared, documents)

    assert ops_of(growth.outcomes, "id", "note", "new", "note__long") == [
        ("upsert", 1, "old", 1, None),
        ("upsert", 3, None, None, 7),
    ]
    assert len(refused(growth.outcomes)) == 1


def test_text_of_canal_counts_as_a_number_in_number_columns() -> None:
    """Canal sends texts: in number columns they are numbers, and widen them; new columns are texts."""
    declared = pipeline(changes={"format": "canal"}, columns={**KEY, "count": "int"}, evolve="widen")

    growth = grown(
        declared, [canal("INSERT", [{"id": "1", "count": "3000000000", "new": "5"}, {"id": "2", "count": "1"}])]
    )

    assert changes_asked(growth) == ["widen count long", "add new string"]
    assert ops_of(growth.outcomes, "id", "count", "new") == [("upsert", 1, 3_000_000_000, "5"), ("upsert", 2, 1, None)]


def test_fields_beyond_the_limit_are_rescued() -> None:
    """They are kept as they were sent, in every format, also beside a deleted row and a key that moves."""
    declared = pipeline(changes=DEBEZIUM, columns=KEY, evolve="widen", max_columns=2)
    documents = [
        event("u", {"id": 9, "b": 1}, {"id": 1, "a": 1, "b": {"c": [1.50]}, "x.y": 2}),
        event("d", {"id": 5, "b": 1}, None),
    ]

    growth = grown(declared, documents)

    rows = ops_of(growth.outcomes, "id", "a", "_rescued")
    assert rows == [("delete", 9, None, None), ("upsert", 1, 1, '{"b":{"c":[1.5]},"x.y":2}'), ("delete", 5, None, None)]


def test_key_and_order_stay_required_in_a_merged_table() -> None:
    """Key and order columns are never relaxed; other required columns may become optional."""
    columns = {**KEY, "at": {"type": "long", "required": True}, "name": {"type": "string", "required": True}}
    declared = pipeline(changes=DEBEZIUM, columns=columns, order_by="at", evolve="full")
    rows = [{"id": 1, "at": 1}, {"id": 2}, {"at": 3, "name": "a"}]

    growth = grown(declared, [event("c", None, row) for row in rows])

    assert changes_asked(growth) == ["optional name"]
    assert ops_of(growth.outcomes, "id", "at") == [("upsert", 1, 1)]
    assert len(refused(growth.outcomes)) == 2


@pytest.mark.parametrize("order_by", [None, "at"])
def test_dead_letter_of_a_change_brings_no_columns(order_by: str | None) -> None:
    """A change without key or order field is a dead letter and requests nothing."""
    declared = pipeline(changes=DEBEZIUM, columns={**KEY, "at": "long"}, order_by=order_by, evolve="widen")
    keyless = [{"id": None, "at": 1, "new": 5}, {"at": 1, "new": 5}]
    rows = keyless if order_by is None else [*keyless, {"id": 1, "new": 5}]

    growth = grown(declared, [event("c", None, row) for row in (*rows, {"id": 2, "at": 2, "other": True})])

    assert changes_asked(growth) == ["add other boolean"]
    assert ops_of(growth.outcomes, "id", "other") == [("upsert", 2, True)]
    assert len(refused(growth.outcomes)) == len(rows)


def test_envelope_of_two_rows_brings_no_columns() -> None:
    """It is ambiguous, so it requests nothing."""
    declared = pipeline(changes=ENVELOPE, columns=KEY, evolve="widen")
    growth = grown(
        declared, [{"insert": {"id": 1, "new": 5}, "delete": {"id": 2}}, {"insert": {"id": 3, "other": True}}]
    )
    assert changes_asked(growth) == ["add other boolean"]
    assert ops_of(growth.outcomes, "id", "other") == [("upsert", 3, True)]
    assert len(refused(growth.outcomes)) == 1


def test_two_tables_of_one_topic_have_their_own_columns() -> None:
    """Each has those of its own rows, though one field is a text here and a number there."""
    two = {
        "name": "both",
        "source": {"topics": ["orders"]},
        "route": {"static": {"field": "source.table", "tables": {}}},
    }
    options = {"write": "cdc", "identifier": ["id"], "changes": DEBEZIUM, "columns": KEY, "evolve": "widen"}
    two["route"]["static"]["tables"] = {"a.cats": "cats", "a.dogs": "dogs"}  # type: ignore[index]
    declared = Pipeline.model_validate(
        {**two, "destinations": [{"table": table, **options} for table in ("a.cats", "a.dogs")]}
    )
    documents = [
        event("c", None, {"id": 1, "age": 7}, {"table": "cats"}),
        event("c", None, {"id": 1, "age": "old"}, {"table": "dogs"}),
        event("u", None, {"id": 2, "age": 8, "lives": 9}, {"table": "cats"}),
    ]

    growth = grown(declared, documents)

    assert {name: str(growth.columns[name].field("age").type) for name in declared.tables} == {
        "a.cats": "int64",
        "a.dogs": "string",
    }
    assert "lives" not in growth.columns["a.dogs"].names
    assert ops_of(growth.outcomes, "id", "age", "lives", table="a.cats") == [
        ("upsert", 1, 7, None),
        ("upsert", 2, 8, 9),
    ]
    assert not filtered(growth.outcomes)


def test_values_of_several_kinds_land_as_texts() -> None:
    """As without changes, also inside objects and lists of an undeclared column."""
    declared = pipeline(changes=DEBEZIUM, columns=KEY, evolve="widen")
    first = {"id": 1, "a": True, "b": {"c": "x"}, "d": ["x"]}
    later = {"id": 2, "a": "x", "b": {"c": 1.50}, "d": [{"e": 1}, None]}
    last = {"id": 3, "a": {"z": 1}, "b": {"c": [1]}, "d": []}

    growth = grown(declared, [event("c", None, each) for each in (first, later, last)])

    assert not refused(growth.outcomes)
    rows = ops_of(growth.outcomes, "id", "a", "b", "d")
    assert rows == [
        ("upsert", 1, "true", {"c": "x"}, ["x"]),
        ("upsert", 2, "x", {"c": "1.5"}, ['{"e":1}', None]),
        ("upsert", 3, '{"z":1}', {"c": "[1]"}, []),
    ]


@pytest.mark.parametrize("options", [{"write": "append", "identifier": []}, {"write": "upsert"}], ids=str)
@pytest.mark.parametrize(
    "transforms", [[], [{"type": "InsertField", "static_field": "a", "static_value": "b"}]], ids=len
)
def test_field_named_as_the_change_column_is_kept(options: dict[str, Any], transforms: list[Any]) -> None:
    """It was left out of a table that appends, and counted nowhere."""
    growth = grown(pipeline({"transforms": transforms}, **options, evolve="widen"), [{"id": 1, "_frazil_op": "x"}])
    (row,) = growth.outcomes.rows[TABLE].to_pylist()
    assert json.loads(row["_rescued"]) == {"_frazil_op": "x"}


AVRO_KEY = {"type": "record", "name": "k", "fields": [{"name": "id", "type": "long"}, {"name": "line", "type": "int"}]}
WHOLE_KEYS: dict[str, tuple[dict[str, Any], Any, object]] = {
    "text": ({"format": "string"}, "value", {"id": 1, "line": 2}),
    "json": ({"format": "json", "fields": {"id": "long", "line": "int"}}, [], {"line": 2, "id": 1}),
    "avro": ({"format": "avro", "schema": json.dumps(AVRO_KEY)}, [], b"\2\4"),
}


@pytest.mark.parametrize(("key", "source", "document"), WHOLE_KEYS.values(), ids=WHOLE_KEYS)
@pytest.mark.parametrize("write", ["cdc", "upsert"])
def test_whole_key_identifies_rows_whose_columns_records_bring(
    write: str, key: dict[str, Any], source: Any, document: object
) -> None:
    """No column of the value is declared: the record's key identifies the row, also a deleted one."""
    identifier = {"type": "string", "required": True, "part": "key", "from": source}
    options: dict[str, Any] = {"changes": DEBEZIUM} if write == "cdc" else {"write": "upsert"}
    declared = pipeline({"key": key}, identifier=["_key"], columns={"_key": identifier}, evolve="widen", **options)
    values = [event("c", None, NEW), event("d", OLD, None)] if write == "cdc" else [NEW, None]

    growth = grown(declared, values, [document, document])

    assert sorted(changes_asked(growth)) == ["add age long", "add id long", "add name string"]
    upserted, deleted = ops_of(growth.outcomes, "_key", "id", "name", "age")
    assert upserted == ("upsert", upserted[1], 1, "Ann", 7)
    assert deleted == ("delete", upserted[1], None, None, None)
    assert json.loads(upserted[1]) == {"id": 1, "line": 2}
    assert not refused(growth.outcomes)
