"""The outcome of a record does not depend on its neighbours in the batch: else a replay would make other rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pytest

from frazil.records.decoder.route import Route, StaticRoute
from frazil.records.model.format import Frame, Transform, Transformed
from frazil.records.model.spec import RecordSpec
from frazil.records.transforms.kinds.change_events import DebeziumTransform
from frazil.records.transforms.kinds.conditions import Filter, HasHeaderKey, TopicNameMatches, When, WithKey
from frazil.records.transforms.kinds.field_sets import (
    CopyValue,
    ExtractField,
    HoistField,
    InsertField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from frazil.records.transforms.kinds.field_values import Cast, MaskField
from frazil.records.transforms.kinds.nested import Explode, Flatten
from frazil.records.transforms.kinds.sql import Sql
from frazil.records.transforms.kinds.topics_and_headers import HeaderFrom, InsertHeader, RegexRouter
from tests.format_specs import format_spec
from tests.unit.records.alone import both_ways, records_of

FIELDS = pa.schema(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("s", pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ("l", pa.list_(pa.string())),
    ]
)
VALUES: list[dict[str, Any]] = [
    {"a": 1, "b": "10", "s": {"x": 1, "y": "1"}, "l": ["1", "2"]},
    {"a": 2, "b": "x", "l": []},
    {"a": None, "b": None, "s": {"x": 3}, "l": ["x"]},
    {"a": 4, "b": "40", "s": {"x": 4, "y": "4"}, "l": ["3", "x"]},
]
RECORDS = records_of(
    *((topic, b"k", json.dumps(value).encode()) for value in VALUES for topic in ("p", "q")),
    headers=[["h"], [], [], ["h"], [], ["h"], ["h"], []],
)
P = TopicNameMatches("p")
H = HasHeaderKey("h")


def when(transform: Transform, predicate: Any = P) -> When:
    return When(transform, predicate)


RENAME = when(ReplaceField(renames={"a": "c"}))
CHAINS: dict[str, tuple[Transform, ...]] = {
    "inserted": (when(InsertField(static_field="c", static_value="x")),),
    "renamed": (RENAME,),
    "left out": (when(ReplaceField(exclude=("b", "s"))),),
    "wrapped": (when(ReplaceField(exclude=("b",))), HoistField("a")),
    "wrapped and opened": (when(InsertField(static_field="s", static_value="x")), HoistField("w"), Flatten()),
    "another type": (when(Cast({"a": "string"})),),
    "masked": (when(MaskField(("b",), "9")),),
    "flattened": (when(Flatten(delimiter="_")), MaskField(("b",))),
    "read by a later step": (RENAME, CopyValue("c", "d")),
    "taken out later": (RENAME, ExtractField("c")),
    "kept later": (RENAME, ReplaceField(include=("c", "b"))),
    "in the key": (RENAME, ValueToKey(("c",))),
    "in some keys": (when(ValueToKey(("a",))), WithKey(Cast({"a": "string"}, target="key"))),
    "moved to a header": (RENAME, HeaderFrom(("c",), ("h",), "move")),
    "in expressions": (RENAME, Sql("* EXCLUDE (l), c + 1 AS d")),
    "in all expressions": (RENAME, Sql("*, b || 'x' AS d")),
    "in a condition": (RENAME, Sql(where="c > 1")),
    "exploded": (when(Explode("l")),),
    "exploded, then the others": (when(Explode("l")), When(Cast({"l": "int32"}), P)),
    "of both kinds": (RENAME, when(ReplaceField(renames={"b": "e"}), H), when(InsertField(offset_field="o"), H)),
    "filtered": (RENAME, when(Filter(), H)),
    "routed": (when(RegexRouter("p", "q")), when(ReplaceField(renames={"a": "c"}), TopicNameMatches("q"))),
    "named": (when(SetSchemaMetadata("n")), when(InsertHeader("i", "1"), H)),
}
COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.string()), ("d", pa.int64())])
WHOLE = pa.schema([("all", pa.string())])
KEYED = pa.schema([("b", pa.string()), ("k", pa.string())])
WITH_DEFAULTS = RecordSpec(COLUMNS, fields=FIELDS, defaults={"a": -1, "c": "none", "d": -2}, casts="text")
SPECS: dict[str, RecordSpec] = {
    "columns": RecordSpec(COLUMNS, fields=FIELDS, casts="text"),
    "defaults": WITH_DEFAULTS,
    "required": RecordSpec(pa.schema([pa.field("c", pa.int64(), nullable=False)]), fields=FIELDS),
    "whole": RecordSpec(WHOLE, fields=FIELDS, sources={"all": ()}),
    "rescued": RecordSpec(
        pa.schema([("a", pa.string()), ("_rescued", pa.string())]), fields=FIELDS, unknown_fields="rescue", casts="text"
    ),
    "refused": RecordSpec(COLUMNS.append(FIELDS.field("s")), fields=FIELDS, unknown_fields="fail", casts="text"),
    "keys": RecordSpec(
        KEYED, fields=FIELDS, key=format_spec("string"), sources={"k": ()}, of_key=frozenset({"k"}), casts="text"
    ),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_fields_of_a_record_do_not_depend_on_its_neighbours(chain: tuple[Transform, ...], spec: RecordSpec) -> None:
    """A field that only a neighbour has would be null, rather than missing: another row, letter, count or JSON text."""
    shaped = RecordSpec(**{**{name: getattr(spec, name) for name in spec.__slots__}, "transforms": chain})

    whole, alone = both_ways(shaped, RECORDS)

    assert whole == alone
    assert not whole.refused


SOURCE = {"db": "d", "table": "t"}
IMAGES = pa.schema(
    [
        ("op", pa.string()),
        ("before", pa.struct([("id", pa.int64()), ("old", pa.string())])),
        ("after", pa.struct([("id", pa.int64()), ("new", pa.string())])),
        ("source", pa.struct([("db", pa.string()), ("table", pa.string())])),
    ]
)


@pytest.mark.parametrize("handling", ["none", "drop", "rewrite"])
def test_deleted_row_keeps_its_fields_to_itself(handling: Literal["none", "drop", "rewrite"]) -> None:
    """The schema of the envelope determines the fields of a row, whether or not another row was deleted."""
    images: list[dict[str, Any]] = [
        {"op": "c", "after": {"id": 1, "new": "n"}},
        {"op": "d", "before": {"id": 2, "old": "o"}},
    ]
    records = records_of(*(("t", None, json.dumps({**image, "source": SOURCE}).encode()) for image in images))
    spec = RecordSpec(
        WHOLE, fields=IMAGES, sources={"all": ()}, transforms=(DebeziumTransform(delete_handling=handling),)
    )

    whole, alone = both_ways(spec, records)

    assert whole == alone


@dataclass(frozen=True)
class Parted:
    """An own transform that leaves rows in two shapes: the even ones have a field more."""

    def apply(self, frame: Frame) -> Transformed:
        """Part them, each kind in its own frame."""
        numbers = frame.value.column("n").to_pylist()
        even, odd = (
            frame.take(pa.array([index for index, n in enumerate(numbers) if (n % 2 == 0) == kind], pa.int64()))
            for kind in (True, False)
        )
        more = even.with_value(even.value.append_column("more", pa.array(["m"] * len(even), pa.string())))
        return Transformed(more, other_frames=(odd,))


LISTS = pa.schema([("n", pa.list_(pa.int64())), ("to", pa.string())])
LISTED = records_of(
    *(
        ("t", None, json.dumps({"n": numbers, "to": kind_of_table}).encode())
        for numbers, kind_of_table in [
            ([1, 2, 3], "x"),
            ([2, 40_000_000_000], "x"),
            ([1], "y"),
            ([], "y"),
            ([6, 1, 4], "x"),
        ]
    )
)
PARTED = RecordSpec(
    pa.schema([("n", pa.int32()), ("more", pa.string())]),
    fields=LISTS,
    defaults={"more": "none"},
    transforms=(Explode("n", outer=False), Parted()),
)


@pytest.mark.parametrize("tables", [1, 2])
def test_record_with_rows_of_two_shapes_lands_whole_or_not(tables: int) -> None:
    """The record is still one: it lands with all rows or none, also where only a row of another shape fails."""
    specs = {f"t{number}": PARTED for number in range(tables)}
    route = None if tables == 1 else Route(StaticRoute(("to",), {"t0": "x", "t1": ".*"}), "dead_letter")

    whole, alone = both_ways(specs, LISTED, route)

    assert whole == alone
    pairs = [row.strip("()").split(", ")[:2] for row in whole.rows["t0"]]
    assert [row for row in pairs if "40000000000" in row] == []
    assert sorted(pairs)[:2] == [["1", "'none'"], ["1", "'none'"]]
    assert [letter for letter in whole.dead if "'OUT_OF_RANGE'" in letter]


def test_failing_record_takes_rows_of_every_shape() -> None:
    """If a transform fails on one row, all rows of its record are dead, also those in another frame."""
    spec = RecordSpec(PARTED.columns, fields=LISTS, transforms=(*PARTED.transforms, Cast({"n": "int8"})))

    whole, alone = both_ways(spec, LISTED)

    assert whole == alone
    assert sum("TRANSFORM_FAILED" in letter for letter in whole.dead) == 1
    assert len(whole.rows["t"]) == 3 + 1 + 3
