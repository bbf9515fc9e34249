"""Debezium's envelopes become the rows that changed."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.transforms.kinds.change_events import DebeziumTransform
from tests.unit.records.transforms.frames import dead_messages, frame_of, run

IMAGE = pa.struct([pa.field("id", pa.int64(), nullable=False), pa.field("tags", pa.list_(pa.string()))])
ORIGIN = pa.struct([("db", pa.string()), ("schema", pa.string()), ("table", pa.string())])
SHAPE = pa.schema([("before", IMAGE), ("after", IMAGE), ("source", ORIGIN), ("op", pa.string()), ("ts_ms", pa.int64())])
SOURCE = {"db": "shop", "schema": "public", "table": "orders"}
OLD, NEW = {"id": 1, "tags": ["old"]}, {"id": 1, "tags": None}
GOOD: dict[str, object] = {"before": OLD, "after": NEW, "source": SOURCE, "op": "u", "ts_ms": 1500}


def _events(*changes: dict[str, object]) -> list[dict[str, object]]:
    return [{**GOOD, **change} for change in changes]


OPS = [("c", "I", NEW), ("r", "I", NEW), ("u", "U", NEW), ("d", "D", OLD)]


@pytest.mark.parametrize(("op", "image", "row"), OPS)
def test_each_op_gives_its_image(op: str, image: object, row: dict[str, object]):
    """Deletes give the row before, all others the row after, between neighbours of another op."""
    done = run(DebeziumTransform("{db}_x.{table}_y"), frame_of(_events({"op": op}, {"op": "d"}, {}), SHAPE))

    value = done.frame.value.to_pylist()
    cdc = value[0].pop("_cdc")
    assert value[0] == row
    assert value[1]["tags"] == ["old"]
    assert cdc == {
        "op": image,
        "ts": dt.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=dt.UTC),
        "offset": 101,
        "source": "public.orders",
        "target": "public_x.orders_y",
    }


FAILURES = [
    ("no op", {"op": None}, "expected op as one of c, r, u, d, t, m, found null"),
    ("other op", {"op": "z" * 200}, "found text"),
    ("no row after", {"after": None}, 'expected after for op text "u", found null'),
    ("no row before", {"op": "d", "before": None}, "expected before, the deleted row, found null"),
    ("no source", {"source": None}, "expected source.db and source.table, found null"),
    ("no table", {"source": {**SOURCE, "table": None}}, "expected source.db and source.table, found null"),
    ("no time", {"ts_ms": 2**62}, "expected ts_ms in milliseconds since 1970"),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_half_an_envelope_fails_alone(change: dict[str, object], message: str):
    """Its neighbours land."""
    done = run(DebeziumTransform(), frame_of(_events({}, change, {"op": "d"}), SHAPE))

    assert done.frame.positions.to_pylist() == [0, 2]
    assert message in dead_messages(done)[1]
    assert len(dead_messages(done)[1]) < 200


def test_events_without_a_row_are_filtered():
    """Truncates and messages have no images, and are no bad records."""
    empty = {"before": None, "after": None, "source": None}

    done = run(DebeziumTransform(), frame_of(_events({"op": "t", **empty}, {"op": "m", **empty}, {}), SHAPE))

    assert (done.filtered, done.dead) == ({0, 1}, {})


DELETES = [("none", [1, 1], None), ("drop", [1], None), ("rewrite", [1, 1], ["false", "true"])]


@pytest.mark.parametrize(("handling", "ids", "image"), DELETES)
def test_deletes_are_handled_as_declared(handling: str, ids: list[int], image: object):
    """Kept, dropped or marked as ExtractNewRecordState does."""
    value = run(DebeziumTransform(delete_handling=handling), frame_of(_events({}, {"op": "d"}), SHAPE)).frame.value

    assert value["id"].to_pylist() == ids
    assert (value["__deleted"].to_pylist() if "__deleted" in value.schema.names else None) == image


def test_required_fields_of_the_row_stay_required():
    """Rows without the image fail, so they need no nulls."""
    value = run(DebeziumTransform(), frame_of(_events({"op": "d"}, {"before": None}), SHAPE)).frame.value

    assert [field.nullable for field in value.schema] == [False, True, False]


def test_the_key_joins_where_keys_are_decoded():
    """A struct, or the bare value of a key without fields."""
    keys = [pa.record_batch({"id": [7]}), pa.record_batch({"value": ["k"]})]
    frames = [frame_of(_events({}), SHAPE, key) for key in keys]

    found = [run(DebeziumTransform(), frame).frame.value["_cdc"].to_pylist()[0]["key"] for frame in frames]

    assert found == [{"id": 7}, "k"]


def test_images_may_have_different_fields():
    """A field that only one image has is optional; a field must have one type."""
    only_key = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    rows = _events({"before": {"id": 1}, "op": "d"}, {"before": None})

    value = run(DebeziumTransform(), frame_of(rows, SHAPE.set(0, pa.field("before", only_key)))).frame.value

    assert value.to_pylist()[0]["tags"] is None
    second_shape = SHAPE.set(0, pa.field("before", pa.struct([("id", pa.string())])))
    with pytest.raises(Terminal, match="one type of field id, found string before and long after"):
        DebeziumTransform().apply(frame_of(_events({"before": {"id": "1"}, "op": "d"}), second_shape))


def test_documents_in_json_text_become_one_column():
    """MongoDebezium leaves such images where no types are declared; MongoDB has collections."""
    shape = pa.schema(
        [
            ("after", pa.string()),
            ("op", pa.string()),
            ("source", pa.struct([("db", pa.string()), ("collection", pa.string())])),
        ]
    )
    row: dict[str, object] = {"after": "{}", "op": "c", "source": {"db": "d", "collection": "c"}}

    value = run(DebeziumTransform(), frame_of([row], shape)).frame.value.to_pylist()

    assert (value[0]["value"], value[0]["_cdc"]["source"]) == ("{}", "d.c")


def test_faults_of_the_declaration_are_refused():
    """A wrong type, and data that has a field of the struct's name."""
    with pytest.raises(Terminal, match="expected after as struct or string, found long"):
        DebeziumTransform().apply(frame_of([{"op": "c", "after": 1}]))
    with pytest.raises(Terminal, match="the data already has a field id"):
        DebeziumTransform(cdc_field="id").apply(frame_of(_events({}), SHAPE))


def test_records_of_another_shape_fail_one_by_one():
    """A foreign writer schema in the topic must not stop the pipeline."""
    assert len(run(DebeziumTransform(), frame_of([{"x": 1}, {"x": 2}])).dead) == 2


ENVELOPES = st.fixed_dictionaries(
    {
        "before": st.none() | st.just(OLD),
        "after": st.none() | st.just(NEW),
        "source": st.none() | st.just(SOURCE),
        "op": st.sampled_from(["c", "r", "u", "d", "t", "m", "x", "", None]),
        "ts_ms": st.none() | st.integers(-(2**63), 2**63 - 1),
    }
)


@settings(max_examples=80)
@given(st.lists(ENVELOPES, min_size=1, max_size=6), st.sampled_from(["none", "drop", "rewrite"]))
def test_every_envelope_has_one_outcome_of_its_own(rows: list, handling: str):
    """What becomes of a record does not depend on its neighbours."""
    transform = DebeziumTransform(delete_handling=handling)
    alone = [run(transform, frame_of([row], SHAPE)) for row in rows]

    at_once = run(transform, frame_of(rows, SHAPE))

    assert at_once.frame.positions.to_pylist() == [index for index, one in enumerate(alone) if len(one.frame)]
    assert dead_messages(at_once) == {index: one.dead[0].message for index, one in enumerate(alone) if one.dead}
