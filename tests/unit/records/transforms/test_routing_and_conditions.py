"""Topics, headers, predicates, and several transforms one after the other."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.errors import Terminal
from frazil.records.model.format import Frame, Transformed
from frazil.records.transforms import catalogue
from frazil.records.transforms.catalogue import predicate, transform
from frazil.records.transforms.chain import chain
from frazil.records.transforms.kinds.conditions import Filter, HasHeaderKey, RecordIsTombstone, TopicNameMatches, When
from frazil.records.transforms.kinds.field_sets import InsertField, ReplaceField, SetSchemaMetadata, ValueToKey
from frazil.records.transforms.kinds.field_values import Cast, MaskField
from frazil.records.transforms.kinds.nested import Explode
from frazil.records.transforms.kinds.topics_and_headers import (
    DropHeaders,
    HeaderFrom,
    InsertHeader,
    RegexRouter,
    TimestampRouter,
)
from tests.unit.records.transforms.frames import run

Build = Callable[..., Frame]


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "expected"),
    [
        ("orders-(.*)", "o_$1", "orders-eu", "o_eu"),
        ("orders-(.*)", "o_$1", "my-orders-eu", "my-orders-eu"),
        ("orders", "x", "orders-eu", "orders-eu"),
        ("(?<region>[a-z]+)\\.(.*)", "$2.${region}", "eu.orders", "orders.eu"),
        ("(a)(b)?", "$1$2", "a", "a"),
        ("(a)", "$10", "a", "a0"),
        ("(a)", "$0", "a", "a"),
        ("a", r"\$1\\", "a", "$1\\"),
        ("orders", "", "orders", None),
    ],
)
def test_record_is_routed_to_the_renamed_topic(
    frame: Build, regex: str, replacement: Any, topic: str, expected: Any
) -> None:
    """The new topic is Java's; the record keeps its own; a topic without characters is a dead letter."""
    done = run(RegexRouter(regex, replacement), frame(value={"a": [1, 2]}, topics=[topic, "elsewhere"]))
    failed = expected is None
    assert done.frame.topic.to_pylist() == (["elsewhere"] if failed else [expected, "elsewhere"])
    assert done.frame.records["topic"].to_pylist() == (["elsewhere"] if failed else [topic, "elsewhere"])
    assert set(done.dead) == ({0} if failed else set())


@pytest.mark.parametrize(
    ("regex", "replacement"), [("(", "a"), ("a", "$1"), ("(a)", "${b}"), ("(a)", "$"), ("a", "\\")]
)
def test_invalid_router_is_refused(regex: str, replacement: Any) -> None:
    """Expressions and references that mean nothing are refused before any record is."""
    with pytest.raises(Terminal):
        RegexRouter(regex, replacement).prepare()


def test_record_is_routed_to_its_own_day(frame: Build) -> None:
    """The day is the record's in UTC, and a record without timestamp is a dead letter."""
    late = int(dt.datetime(2024, 2, 29, 23, 59, 59, tzinfo=dt.UTC).timestamp()) * 1_000_000
    given_frame = frame(value={"a": [1, 2, 3]}, topics=["a", "b", "c"], timestamps=[late, None, 2**62])
    done = run(TimestampRouter("x.${topic}.${timestamp}.${topic}", "yyyy-MM-dd"), given_frame)
    assert done.frame.topic.to_pylist() == ["x.a.2024-02-29.a"]
    assert all("expected a timestamp" in done.dead[position].message for position in (1, 2))


HEADERS = [[("a", b"1"), ("b", None)], None, [], [("a", b"2")]]


def headers_of(frame: Frame) -> list[object]:
    return [
        None if pairs is None else [(pair["key"], pair["value"]) for pair in pairs]
        for pairs in frame.headers.to_pylist()
    ]


def test_header_stays_with_its_record(frame: Build) -> None:
    """Each record gets its own value, behind its own headers."""
    value = {
        "n": [1, 2, None, 4],
        "t": ["ä", "", None, "x"],
        "l": pa.array([[1], None, [], [2, 3]], pa.list_(pa.int32())),
    }
    given_frame = frame(value=value, headers=HEADERS)
    done = run(HeaderFrom(("t", "n", "l"), ("T", "N", "L"), "move"), given_frame).frame
    assert headers_of(done) == [
        [("a", b"1"), ("b", None), ("T", "ä".encode()), ("N", b"1"), ("L", b"[1]")],
        [("T", b""), ("N", b"2"), ("L", None)],
        [("T", None), ("N", None), ("L", b"[]")],
        [("a", b"2"), ("T", b"x"), ("N", b"4"), ("L", b"[2,3]")],
    ]
    assert (done.value.num_columns, done.value.num_rows) == (0, 4)
    copied = run(HeaderFrom(("n",), ("N",), "copy"), given_frame).frame
    assert copied.value.equals(given_frame.value)
    assert set(run(HeaderFrom(("x",), ("X",), "copy"), given_frame).dead) == {0, 1, 2, 3}


def test_only_named_headers_are_dropped(frame: Build) -> None:
    """Only headers of the names go; records without headers stay without."""
    given_frame = frame(value={"n": [1, 2, 3, 4]}, headers=HEADERS)
    assert headers_of(run(DropHeaders(("a", "z")), given_frame).frame) == [[("b", None)], None, [], []]
    inserted = run(InsertHeader("h", "ä"), given_frame).frame
    assert headers_of(run(DropHeaders(("a", "b")), inserted).frame) == [[("h", "ä".encode())]] * 4
    with pytest.raises(ValueError, match="2 fields"):
        HeaderFrom(("a", "b"), ("x",), "move")


@given(
    st.lists(
        st.one_of(st.none(), st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=2)), max_size=3)),
        min_size=1,
        max_size=8,
    )
)
def test_headers_keep_their_order(frame: Build, pairs: list[Any]) -> None:
    """Adding and dropping headers is what it would be record by record, also within a slice."""
    whole = frame(value={"n": list(range(len(pairs) + 1))}, headers=[[("z", b"z")], *pairs])
    given_frame = whole.take(pa.array(range(1, len(pairs) + 1), pa.int64()))
    added = headers_of(run(InsertHeader("a", "!"), given_frame).frame)
    assert added == [[*(row or []), ("a", b"!")] for row in pairs]
    dropped = headers_of(run(DropHeaders(("a",)), given_frame).frame)
    assert dropped == [None if row is None else [pair for pair in row if pair[0] != "a"] for row in pairs]
    assert HasHeaderKey("b").holds(given_frame).to_pylist() == ["b" in dict(row or []) for row in pairs]


def test_exactly_matching_records_are_filtered(frame: Build) -> None:
    """Exactly the records that a predicate selects are filtered; so with its negation."""
    given_frame = frame(
        value={"a": [1, None, 3]},
        headers=[[("h", b"")], None, []],
        topics=["a-x", "b", "a-y"],
        values=[b"1", None, b"3"],
    )
    for selection, positions in (
        (TopicNameMatches("a-.*"), {0, 2}),
        (HasHeaderKey("h"), {0}),
        (RecordIsTombstone(), {1}),
    ):
        assert run(When(Filter(), selection), given_frame).filtered == positions
        assert run(When(Filter(), selection, negate=True), given_frame).filtered == {0, 1, 2} - positions
    routed = chain([RegexRouter("b", "a-b"), When(Filter(), TopicNameMatches("a-.*"))], given_frame)
    assert (len(routed.frame), routed.filtered) == (0, {0, 1, 2})


def test_shapes_stay_apart(frame: Build) -> None:
    """Each kind of records has its own fields and its own rows; those of one shape stay in their order."""
    given_frame = frame(value={"a": [1, 2, 3], "b": ["x", "y", "z"]}, topics=["p", "q", "p"])
    untouched, renamed = run(When(ReplaceField(renames={"b": "c"}), TopicNameMatches("q")), given_frame).frames
    assert (untouched.positions.to_pylist(), renamed.positions.to_pylist()) == ([0, 2], [1])
    assert untouched.value.to_pylist() == [{"a": 1, "b": "x"}, {"a": 3, "b": "z"}]
    assert renamed.value.to_pylist() == [{"a": 2, "c": "y"}]
    without, keyed = run(When(ValueToKey(("a",)), TopicNameMatches("q")), given_frame).frames
    assert (without.key, keyed.key.to_pylist()) == (None, [{"a": 2}])
    same = run(When(ReplaceField(exclude=("a",)), TopicNameMatches("none")), given_frame)
    assert same.frame is given_frame
    plain, named = run(When(SetSchemaMetadata("n"), TopicNameMatches("q")), given_frame).frames
    assert (plain.value.schema.metadata, named.value.schema.metadata) == (None, {b"schema.name": b"n"})
    (masked,) = run(When(MaskField(("b",), "m"), TopicNameMatches("q")), given_frame).frames
    assert masked.value["b"].to_pylist() == ["x", "m", "z"]


def test_column_may_have_two_types(frame: Build) -> None:
    """A field may have another type where the predicate holds: rows of each type are fitted to the columns separately."""
    given_frame = frame(value={"a": [1, 2]}, topics=["p", "q"])
    number, text = run(When(Cast({"a": "string"}), TopicNameMatches("q")), given_frame).frames
    assert (number.value.to_pylist(), text.value.to_pylist()) == ([{"a": 1}], [{"a": "2"}])


def test_frames_of_one_shape_are_merged_after_conditions(frame: Build) -> None:
    """Neighbouring frames of one shape become one again, so that several conditions stay cheap."""
    given_frame = frame(value={"a": [1, 2, 3, 4]}, topics=["p", "q", "p", "q"])
    keyed_step = When(InsertField(static_field="x", static_value="1"), TopicNameMatches("q"))
    back = When(ReplaceField(exclude=("x",)), TopicNameMatches("q"))
    done = chain([keyed_step, back] * 8, given_frame)
    assert ([len(each) for each in done.frames], done.frame.value.to_pylist()) == ([4], given_frame.value.to_pylist())


def test_record_has_one_outcome(frame: Build) -> None:
    """A record of which one row fails or is left out, and another not, has one outcome."""
    given_frame = frame(value={"l": [["1", "x"], ["2"], ["3", "4"]], "t": ["a", "b", "c"]})
    done = chain([Explode("l"), Cast({"l": "int32"})], given_frame)
    assert (set(done.dead), done.frame.positions.to_pylist()) == ({0}, [1, 2, 2])

    class LeaveOneOut:
        def apply(self, frame: Frame) -> Transformed:
            rows = pa.array(range(1, len(frame)), pa.int64())
            return Transformed(frame.take(rows), filtered=frozenset([frame.positions[0].as_py()]))

    done = chain([Explode("l"), LeaveOneOut()], given_frame)
    assert (done.frame.positions.to_pylist(), done.filtered) == ([0, 1, 2, 2], frozenset())
    done = chain([Explode("l"), LeaveOneOut(), LeaveOneOut()], given_frame)
    assert (done.frame.positions.to_pylist(), done.filtered) == ([1, 2, 2], {0})
    done = chain([Explode("l"), LeaveOneOut(), Cast({"l": "int32"})], given_frame)
    assert (set(done.dead), done.filtered) == ({0}, frozenset())


def test_exploded_row_is_not_a_tombstone(frame: Build) -> None:
    """Rows that carry no bytes of their own are no tombstones, whichever of their record are left."""
    given_frame = frame(value={"l": pa.array([["1", "2"], None], pa.list_(pa.string()))}, values=[b"v", None])
    done = chain([Explode("l"), InsertField(topic_field="t")], given_frame).frame
    assert done.value["t"].to_pylist() == ["orders", "orders", None]
    assert RecordIsTombstone().holds(done).to_pylist() == [False, False, True]
    assert RecordIsTombstone().holds(done.take(pa.array([1, 2]))).to_pylist() == [False, True]


@dataclass(frozen=True)
class Chained:
    """Several transforms as one."""

    transforms: list[Any]

    def apply(self, frame: Frame) -> Transformed:
        """Apply them."""
        return chain(self.transforms, frame)


STEPS = [
    Cast({"a": "int32"}),
    When(Cast({"b": "boolean"}), HasHeaderKey("h"), negate=True),
    When(Filter(), HasHeaderKey("h")),
    When(Filter(), TopicNameMatches("b")),
    InsertField(topic_field="t", timestamp_field="at!"),
    ReplaceField(exclude=("a",)),
    RegexRouter("a", "b"),
    HeaderFrom(("a",), ("h",), "copy"),
    DropHeaders(("h",)),
]


@given(st.data())
def test_every_record_of_a_chain_has_one_outcome(frame: Build, data: st.DataObject) -> None:
    """Whatever transforms run in whatever order, each record has exactly one outcome."""
    rows = st.tuples(st.sampled_from("ab"), st.sampled_from(["1", "x", None]), st.booleans(), st.booleans())
    drawn = data.draw(st.lists(rows, min_size=1, max_size=6))
    given_frame = frame(
        value={"a": pa.array([a for _, a, _, _ in drawn], pa.string()), "b": pa.array(["true"] * len(drawn))},
        topics=[topic for topic, *_ in drawn],
        headers=[[("h", b"")] if h else None for _, _, h, _ in drawn],
        timestamps=[1 if has_time else None for *_, has_time in drawn],
    )
    chosen = data.draw(st.lists(st.sampled_from(STEPS), max_size=6))
    run(Chained(chosen), given_frame)


def test_names_lead_to_their_transforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names lead to their transforms, also to own ones; the message about an unknown name suggests a similar one."""
    assert transform("Cast$Key", {"spec": "int8"}) == Cast("int8", target="key")
    assert transform("Filter", {}, when=predicate("HasHeaderKey", {"name": "a"})) == When(Filter(), HasHeaderKey("a"))
    own = EntryPoints(
        [
            EntryPoint("acme.Drop", "frazil.records.transforms.kinds.conditions:Filter", "frazil.transforms"),
            EntryPoint("acme.Gone", "frazil.records.gone:Filter", "frazil.transforms"),
        ]
    )
    monkeypatch.setattr(catalogue, "entry_points", lambda group: own.select(group=group))
    assert transform("acme.Drop", {}) == Filter()
    for name, options, message in (
        ("acme.Gone", {}, "can't be loaded"),
        ("acme.Drip", {}, "did you mean 'acme.Drop'"),
        ("Regexrouter", {}, "did you mean 'RegexRouter'"),
        ("Filter$Key", {}, "options don't fit"),
        ("Cast", {"specs": "int8"}, "options don't fit"),
    ):
        with pytest.raises(Terminal, match=message):
            transform(name, options)
    with pytest.raises(Terminal, match="no predicate"):
        predicate("HasHeader", {})
