"""Changes of a table's schema that records ask for, on a real SQLite catalog."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from frazil.batch.schema_change import ChangeKind, SchemaChange
from frazil.errors import Retryable, Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import TABLE_PROPERTIES
from frazil.iceberg.commit.summary_state import CHANGES_KEY
from frazil.iceberg.ledger.ledger import UNPARTITIONED
from frazil.iceberg.schema.evolution import TableChanges, evolve, undecided_changes
from frazil.pipeline.models.pipeline_file import Destination
from tests.unit.iceberg.orders import answer_lost, elsewhere, follow, never_arrived, overtaken

TABLE = "shop.events"
SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "price", FloatType()),
    NestedField(3, "amount", DecimalType(9, 2)),
    NestedField(4, "place", StructType(NestedField(5, "city", StringType()), NestedField(6, "number", IntegerType()))),
    NestedField(7, "lines", ListType(8, StructType(NestedField(9, "sku", StringType())), element_required=False)),
    NestedField(
        10, "tags", MapType(11, StringType(), 12, StructType(NestedField(13, "at", LongType())), value_required=False)
    ),
    NestedField(14, "a.b", StructType(NestedField(15, "c.d", IntegerType()))),
)


@pytest.fixture
def events(lake: Lake) -> Lake:
    """The catalog with an empty table of nested columns."""
    lake.create_table(TABLE, SCHEMA, UNPARTITIONED, TABLE_PROPERTIES)
    return lake


def change_of(path: str, kind: ChangeKind, data_type: str = "") -> SchemaChange:
    """A change, its path with slashes."""
    return SchemaChange(tuple(path.split("/")), kind, data_type)


def ask(lake: Lake, *changes: SchemaChange, **layout: tuple[str, ...]) -> tuple[SchemaChange, ...]:
    """Make changes of a table whose file says how it is laid out."""
    return evolve(lake, TableChanges(Destination.model_validate({"table": TABLE, **layout}), changes))


def types(lake: Lake) -> dict[str, str]:
    """Path -> type of every field, from the catalog."""
    changes_found: dict[str, str] = {}

    def walk(path: str, fields: Iterable[NestedField]) -> None:
        for field in fields:
            inner = field.field_type
            changes_found[f"{path}{field.name}"] = str(inner) if inner.is_primitive else "…"
            match inner:
                case StructType():
                    walk(f"{path}{field.name}/", inner.fields)
                case ListType():
                    walk(f"{path}{field.name}/", [inner.element_field])
                case MapType():
                    walk(f"{path}{field.name}/", [inner.value_field])

    walk("", lake.load_table(TABLE).schema().fields)
    return changes_found


CHANGES = [
    (change_of("note", "add", "string"), {"note": "string"}),
    (change_of("note.of", "add", "long"), {"note.of": "long"}),
    (
        change_of("shop", "add", "struct<name: string, at: list<long>>"),
        {"shop/name": "string", "shop/at/element": "long"},
    ),
    (change_of("place/zip", "add", "string"), {"place/zip": "string"}),
    (change_of("lines/element/count", "add", "long"), {"lines/element/count": "long"}),
    (change_of("tags/value/by", "add", "map<string, double>"), {"tags/value/by/value": "double"}),
    (change_of("a.b/x", "add", "boolean"), {"a.b/x": "boolean"}),
    (change_of("id", "widen", "long"), {"id": "long"}),
    (change_of("price", "widen", "double"), {"price": "double"}),
    (change_of("amount", "widen", "decimal(20,2)"), {"amount": "decimal(20, 2)"}),
    (change_of("place/number", "widen", "long"), {"place/number": "long"}),
    (change_of("a.b/c.d", "widen", "long"), {"a.b/c.d": "long"}),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=str)
def test_change_reaches_exactly_its_column(events: Lake, change: SchemaChange, expected: dict[str, str]) -> None:
    """Each change makes what it says, wherever it is nested, and nothing else of the table is another one."""
    before = types(events)

    assert ask(events, change) == (change,)

    after = types(events)
    assert {path: after[path] for path in expected} == expected
    assert {path: type_name for path, type_name in after.items() if path in before and path not in expected} == {
        path: type_name for path, type_name in before.items() if path not in expected
    }


def test_field_ids_are_unique(events: Lake) -> None:
    """Every field of nested new columns gets an id of its own, never one that the table had."""
    ask(
        events,
        change_of("shop", "add", "struct<name: string, at: list<long>>"),
        change_of("place/zip", "add", "string"),
    )

    metadata = events.load_table(TABLE).metadata
    new = metadata.schema().field_ids - SCHEMA.field_ids
    assert sorted(new) == [16, 17, 18, 19, 20]
    assert metadata.last_column_id == 20


@pytest.mark.parametrize("fold", [False, True], ids=["exact", "folded"])
def test_docs_come_with_the_columns_that_records_bring(events: Lake, *, fold: bool) -> None:
    """Of new fields, wherever they are. One that is there keeps what a person wrote, and a doc alone makes no commit."""
    docs = ((("shop",), "where"), (("shop", "at", "element", "no"), "which"), (("place", "city"), "not asked"))
    requested = (
        SchemaChange(("shop",), "add", "struct<at: list<struct<no: long>>>", docs=docs),
        SchemaChange(("PLACE" if fold else "place", "zip"), "add", "string", docs=((("place", "zip"), "code"),)),
        SchemaChange(("price",), "add", "float", docs=((("price",), "mine"),)),
    )
    changes = TableChanges(Destination.model_validate({"table": TABLE}), requested, fold=fold)

    applied = evolve(events, changes)

    assert [change.path[-1] for change in applied] == ["shop", "zip"]
    assert [change.docs for change in applied] == [(), ()]
    table = events.load_table(TABLE)
    found = {path: table.schema().find_field(path).doc for path in table.schema().column_names}
    described = {"shop": "where", "shop.at.element.no": "which", "place.zip": "code"}
    assert {path: doc for path, doc in found.items() if doc} == described
    assert evolve(events, changes) == ()


def test_mapping_that_a_file_declares_gets_the_columns_of_its_commit(events: Lake) -> None:
    """What the file says of the columns that are there, and names of those that come, also inside of others."""
    mapping = {"field-id": 4, "names": ["place", "site"], "fields": [{"field-id": 5, "names": ["city"]}]}
    name = "schema.name-mapping.default"
    destination = Destination.model_validate({"table": TABLE, "properties": {name: json.dumps([mapping])}})
    requested = (
        change_of(name, "property"),
        change_of("place/zip", "add", "string"),
        change_of("shop", "add", "list<long>"),
    )

    evolve(events, TableChanges(destination, requested))

    table = events.load_table(TABLE)
    place, shop = table.name_mapping() or ()
    assert (place.names, [field.names for field in place.fields]) == (["place", "site"], [["city"], ["zip"]])
    assert (shop.names, shop.field_id) == (["shop"], table.schema().find_field("shop").field_id)
    assert [field.names for field in shop.fields] == [["element"]]


def test_relaxed_column_becomes_optional(events: Lake) -> None:
    """A change that relaxes a column lets it be null."""
    assert ask(events, change_of("id", "optional")) == (change_of("id", "optional"),)

    assert not events.load_table(TABLE).schema().find_field("id").required


def test_repeated_changes_make_no_commit(events: Lake) -> None:
    """What is there already makes no commit."""
    changes = [change for change, _ in CHANGES] + [change_of("id", "optional")]
    ask(events, *changes)
    location = events.load_table(TABLE).metadata_location

    assert ask(events, *changes) == ()
    assert events.load_table(TABLE).metadata_location == location


def test_wider_column_stays_wide(events: Lake) -> None:
    """A table whose column is wider than asked for stays as it is."""
    ask(events, change_of("id", "widen", "long"))

    assert ask(events, change_of("id", "widen", "int"), change_of("id", "add", "int")) == ()
    assert types(events)["id"] == "long"


def test_changes_of_two_pipelines_are_both_kept(events: Lake) -> None:
    """A rival's change in the middle of the commit is kept: the table gets both, under ids that differ."""
    rival = elsewhere(events)

    theirs = change_of("other", "add", "string"), change_of("shop", "add", "struct<a: long>")
    follow(events, overtaken(lambda: ask(rival, *theirs)))
    changed = ask(events, change_of("note", "add", "string"), change_of("shop", "add", "struct<b: long>"))

    assert changed == (change_of("note", "add", "string"), change_of("shop", "add", "struct<b: long>"))
    assert {"other", "note", "shop/a", "shop/b"} <= types(events).keys()
    schema = events.load_table(TABLE).schema()
    assert len({field.field_id for field in schema.fields}) == len(schema.fields)
    rival._catalog.close()


@pytest.mark.parametrize("text", ["{", "[]", '{"n": 1}', '{"n": 1, "changes": [["note"]]}'])
def test_unreadable_note_of_changes_is_named(events: Lake, text: str) -> None:
    """A person edited the property: that is told, before anything is changed, and not by a stack trace."""
    key = CHANGES_KEY.format("p")
    events.load_table(TABLE).transaction().set_properties({key: text}).commit_transaction()
    expected = f"table {TABLE}: property {key} is not readable"
    with pytest.raises(Terminal, match=expected):
        undecided_changes(events.load_table(TABLE).metadata, "p", TABLE, 0)
    request = TableChanges(Destination(table=TABLE), (change_of("note", "add", "string"),), "p", 1)
    with pytest.raises(Terminal, match=expected):
        evolve(events, request)
    assert "note" not in types(events)


def test_lost_answer_adds_the_column_once(events: Lake) -> None:
    """A commit that landed although an error came is told as made, and made once."""
    follow(events, answer_lost(OSError("connection reset")))

    assert ask(events, change_of("note", "add", "string")) == (change_of("note", "add", "string"),)
    assert len(events.load_table(TABLE).metadata.schemas) == 2


@pytest.mark.parametrize(
    "change",
    [
        change_of("id", "add", "string"),
        change_of("place", "add", "string"),
        change_of("price", "add", "struct<a: long>"),
        change_of("lines", "add", "list<string>"),
        change_of("id", "widen", "string"),
        change_of("amount", "widen", "decimal(20,3)"),
        change_of("price", "widen", "long"),
        change_of("id/x", "add", "long"),
        change_of("tags/key", "widen", "long"),
    ],
    ids=str,
)
def test_column_of_another_type_stays_as_it_is(events: Lake, change: SchemaChange) -> None:
    """One that somebody made of another type meanwhile stays as it is; the next look holds records against that."""
    before = types(events)

    assert ask(events, change) == ()
    assert types(events) == before
    assert ask(events, change, change_of("note", "add", "string")) == (change_of("note", "add", "string"),)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (change_of("PRICE", "add", "double"), {}),
        (change_of("Place/City", "add", "string"), {}),
        (change_of("PLACE", "add", "struct<City: string, zip: string>"), {"place/zip": "string"}),
        (change_of("ID", "widen", "long"), {"id": "long"}),
    ],
    ids=str,
)
def test_spelling_of_a_concurrent_change_is_the_column(
    events: Lake, change: SchemaChange, expected: dict[str, str]
) -> None:
    """Where case means nothing, a rival's spelling is the column; twice there, no record could ever be read."""
    before = types(events)
    evolve(events, TableChanges(Destination.model_validate({"table": TABLE}), (change,), fold=True))
    assert types(events) == before | expected


@pytest.mark.parametrize(
    "change", [change_of("gone/zip", "add", "string"), change_of("gone", "widen", "long")], ids=str
)
def test_column_dropped_meanwhile_does_not_stop_other_changes(events: Lake, change: SchemaChange) -> None:
    """A change of a column that is not there any more is left to the next look, which asks for the whole column."""
    assert ask(events, change, change_of("note", "add", "string")) == (change_of("note", "add", "string"),)


def test_partition_field_comes_in_the_commit_of_its_column(events: Lake) -> None:
    """Partition fields and sort order come in the commit of their columns; those of others are left alone."""
    location = events.load_table(TABLE).metadata_location

    ask(
        events,
        change_of("at", "add", "timestamptz"),
        change_of("kind", "add", "string"),
        partition_by=("day(at)", "bucket(16, kind)", "truncate(4, kind)", "kind", "id", "hour(later)"),
        sort_by=("kind desc", "day(at)", "later"),
    )

    table = events.load_table(TABLE)
    assert [field.name for field in table.spec().fields] == ["at_day", "kind_bucket", "kind_truncate", "kind"]
    assert [str(field.transform) for field in table.spec().fields] == ["day", "bucket[16]", "truncate[4]", "identity"]
    assert [entry.metadata_file for entry in table.metadata.metadata_log] == [location]
    assert [
        (table.schema().find_column_name(field.source_id), str(field.transform)) for field in table.sort_order().fields
    ] == [
        ("kind", "identity"),
        ("at", "day"),
    ]


def test_partition_field_of_a_later_column_is_added(events: Lake) -> None:
    """A column that comes later brings its field to those that are there; the old spec stays for the old files."""
    fields = ("day(at)", "kind")
    ask(events, change_of("at", "add", "timestamptz"), partition_by=fields)

    ask(events, change_of("kind", "add", "string"), partition_by=fields)

    metadata = events.load_table(TABLE).metadata
    assert [field.name for field in metadata.spec().fields] == ["at_day", "kind"]
    assert len({field.field_id for field in metadata.spec().fields}) == 2
    assert len(metadata.partition_specs) == 3


def test_column_type_without_its_partition_transform_is_refused(events: Lake) -> None:
    """A column that comes as text can't be partitioned by day: nothing is changed, and both are named."""
    with pytest.raises(Terminal, match=r"day\(at\) can't partition a column of type string"):
        ask(events, change_of("at", "add", "string"), partition_by=("day(at)",))

    assert "at" not in types(events)


def test_conflicts_of_schema_changes_are_retried_a_bounded_number_of_times(events: Lake) -> None:
    """Who loses every time gives up, to be tried again."""
    follow(events, *[never_arrived(CommitFailedException("somebody else"))] * 5)

    with pytest.raises(Retryable, match="changing the schema of table"):
        ask(events, change_of("note", "add", "string"))


@pytest.mark.parametrize(
    ("properties", "change", "message"),
    [
        ({"write.format.default": "orc"}, change_of("at", "add", "time"), "at would be time, a type that Spark"),
        (
            {"write.format.default": "orc"},
            change_of("refs", "add", "list<struct<at: time>>"),
            "refs.element.at would be time, a type that Spark",
        ),
        ({}, change_of("id_bucket", "add", "int"), "id_bucket is the name of a partition field"),
        ({}, change_of("a", "add", "struct<b: int>"), "multiple fields for name a.b"),
    ],
)
def test_change_that_an_engine_cannot_take_is_refused(
    events: Lake, properties: dict[str, str], change: SchemaChange, message: str
) -> None:
    """Told before anything is decided: behind the decision the batch would wait for ever."""
    before = events.load_table(TABLE).metadata_location
    declared = {"table": TABLE, "partition_by": ["bucket(4, id)"], "properties": properties}
    with pytest.raises(Terminal, match=message):
        evolve(events, TableChanges(Destination.model_validate(declared), (change,)))
    assert events.load_table(TABLE).metadata_location == before
