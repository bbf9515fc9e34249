"""Records that name missing tables: these are requested or refused, whatever the neighbours of a record are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from frazil.batch.facts import Staged
from frazil.batch.schema_change import MOST_NEW_TABLES, table_name_problem
from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.route import FieldRoute, NewTables, Route, Router, TopicRoute
from frazil.records.model.rows import Outcomes, TopicPartition
from frazil.records.model.spec import RecordSpec
from frazil.verify.values.transforms import tables_of
from tests.format_specs import format_spec
from tests.unit.records.kafka_batches import kafka_batch

SPEC = RecordSpec(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
ROUTE_FIELD = FieldRoute(("to",), (r"shop\..*",), (r".*secret.*",))
SHUT = NewTables(SPEC, {"shop.theirs": "it is theirs"}, "no more")


def value(table: Any, number: Any = 1) -> bytes:
    return json.dumps({"id": number, "to": table}).encode()


def decode(
    values: Sequence[bytes], new: NewTables, tables: Sequence[str] = (), route_by: Any = ROUTE_FIELD, **options: Any
) -> Outcomes:
    only = options.pop("only", None)
    route = Route(route_by, new=new, **options)
    return Decoder(dict.fromkeys(tables, SPEC), route, 7).decode(kafka_batch(values), only)


def codes(outcomes: Outcomes) -> list[tuple[int, str]]:
    return list(zip(outcomes.dead.column("offset").to_pylist(), outcomes.dead.column("code").to_pylist(), strict=True))


def test_missing_tables_are_requested_once() -> None:
    """Each name that the route lets through is told once, in order; names of tables that are there are not."""
    values = [value("shop.b"), value("shop.a"), value("shop.b"), value("shop.there"), value("other.a")]
    outcomes = decode(values, NewTables(SPEC), ["shop.there"])
    assert outcomes.new_tables == ("shop.a", "shop.b")
    assert codes(outcomes) == [(104, "UNROUTED")]


@pytest.mark.parametrize(
    "name",
    [
        "shop",
        "shop.",
        ".a",
        "shop..a",
        "shop.a b",
        "shop.a/../../b",
        "shop.a`; DROP",
        "shop.x__ledger",
        "shop.x__dead_letters",
        "shop.\n",
        "shop.a\n",
        "shop." + "a" * 255,
        "",
    ],
)
def test_invalid_or_reserved_table_name_is_a_dead_letter(name: str) -> None:
    """What is no name, or is of Frazil's own tables, is a dead letter, whatever the route allows."""
    assert table_name_problem(name)
    outcomes = decode([value(name)], NewTables(SPEC), route_by=FieldRoute(("to",), (".*",)))
    assert (outcomes.new_tables, codes(outcomes)) == ((), [(100, "UNROUTED")])


def test_names_keep_their_case_and_their_levels() -> None:
    """Two names that differ by case are two tables; namespaces may be nested."""
    outcomes = decode([value("shop.Orders"), value("shop.orders"), value("shop.eu.orders-2")], NewTables(SPEC))
    assert outcomes.new_tables == ("shop.Orders", "shop.eu.orders-2", "shop.orders")


@pytest.mark.parametrize(("otherwise", "dead"), [("dead_letter", 2), ("filter", 0)])
def test_refused_table_is_not_requested_again(otherwise: Any, dead: int) -> None:
    """Names that were refused, and all others once no more are made, become what the file says, each with its reason."""
    outcomes = decode([value("shop.theirs"), value("shop.new")], SHUT, otherwise=otherwise)
    assert not outcomes.asks
    assert codes(outcomes) == [(100, "TABLE_NOT_MADE"), (101, "TABLE_NOT_MADE")][:dead]
    assert outcomes.counts[TopicPartition("orders", 0)].is_complete
    if dead:
        messages = outcomes.dead.column("message").to_pylist()
        assert ["it is theirs" in messages[0], "no more" in messages[1]] == [True, True]


def test_refused_table_fails_a_run_that_wants_to_fail() -> None:
    """`fail` ends the run at the first record whose table is refused; one that is asked for ends nothing."""
    assert decode([value("shop.new")], NewTables(SPEC), otherwise="fail").new_tables == ("shop.new",)
    with pytest.raises(Terminal, match="offset 101"):
        decode([value("shop.there"), value("shop.new")], SHUT, ["shop.there"], otherwise="fail")


def test_topics_name_tables_by_groups() -> None:
    """A table per daily topic, called by what the expression takes out of the topic's name; `deny` refuses names."""
    route_by = TopicRoute({r"orders\.(\d{4})\.(?P<month>\d\d)": r"shop.orders_\1_\g<month>"}, (r".*_2020_.*",))
    batch = kafka_batch([value(None), value(None), value(None)])
    topics = pa.array(["orders.2026.11", "orders.2020.01", "else.where"], batch.schema.field("topic").type)
    batch = batch.set_column(batch.schema.get_field_index("topic"), "topic", topics)
    outcomes = Decoder({}, Route(route_by, new=NewTables(SPEC)), 7).decode(batch)
    assert outcomes.new_tables == ("else.where", "shop.orders_2026_11")
    assert [code for _, code in codes(outcomes)] == ["UNROUTED"]


def test_records_are_read_by_the_template_before_any_table_exists() -> None:
    """Before the first table is made, the template says what a record is: a broken one is a letter of the whole."""
    outcomes = decode([b"{broken", value("shop.a", "x")], NewTables(SPEC))
    assert outcomes.new_tables == ("shop.a",)
    assert codes(outcomes) == [(100, "INVALID_JSON")]


def test_typed_values_name_tables_before_there_is_one() -> None:
    """The same of formats that bring their own fields."""
    proto = 'syntax = "proto3"; message R { int64 id = 1; string to = 2; }'
    spec = replace(SPEC, format=format_spec("protobuf", schema=proto, message="R"))
    outcomes = Decoder({}, Route(ROUTE_FIELD, new=NewTables(spec)), 7).decode(
        kafka_batch([b"\x08\x01\x12\x06shop.a", b"\xff"])
    )
    assert outcomes.new_tables == ("shop.a",)
    assert [offset for offset, _ in codes(outcomes)] == [101]


def test_dead_letter_of_one_table_creates_no_other() -> None:
    """A letter that is tried for its own table asks for no other one: its record stays a letter."""
    outcomes = decode([value("shop.new")], NewTables(SPEC), ["shop.there"], only="shop.there")
    assert (outcomes.new_tables, codes(outcomes)) == ((), [(100, "TABLE_NOT_MADE")])


def test_number_of_requested_tables_is_bounded() -> None:
    """Tasks tell the first names in their order; put together in any order and cut, they are the same."""
    names = [f"shop.t{number:05}" for number in range(3 * MOST_NEW_TABLES)]
    tasks = [
        Staged(new_tables=decode([value(name) for name in names[number::3]], NewTables(SPEC)).new_tables)
        for number in range(3)
    ]
    assert len(tasks[0].new_tables) == MOST_NEW_TABLES
    for order in (tasks, tasks[::-1]):
        merged = Staged.merged(Staged.from_json(part.to_json()) for part in order)
        assert merged.new_tables == tuple(names[:MOST_NEW_TABLES])


@given(
    st.lists(st.sampled_from(["shop.a", "shop.b", "shop.theirs", "x", "shop.secret", None, "shop.a.b"]), max_size=12)
)
def test_requested_table_does_not_depend_on_neighbours(names: list[str | None]) -> None:
    """Read alone or together, a record asks for the same table, or is the same letter."""
    new = NewTables(SPEC, {"shop.theirs": "it is theirs"})
    whole = decode([value(name) for name in names], new, ["shop.a.b"])
    alone = [decode([value(name)], new, ["shop.a.b"]) for name in names]
    assert set(whole.new_tables) == {name for outcomes in alone for name in outcomes.new_tables}
    assert [code for _, code in codes(whole)] == [code for outcomes in alone for _, code in codes(outcomes)]


TEMPLATE = FieldRoute(("to",), (r"events\..*",), (r".*secret",), table="events.{value}_log")


@pytest.mark.parametrize("to", ["PushEvent", "push-event", "x_1", "été", 7, True])
def test_plain_value_names_its_table_by_a_template(to: Any) -> None:
    name = f"events.{json.dumps(to) if not isinstance(to, str) else to}_log"

    assert decode([value(to)], NewTables(SPEC), route_by=TEMPLATE).new_tables == (name,)
    assert decode([value(to)], NewTables(SPEC), [name], route_by=TEMPLATE).rows[name].num_rows == 1


@pytest.mark.parametrize(
    "name", ["", "a.b", "../a", "a/b", "a b", "a`", "a\n", "{value}", "a\u0000", "a\u0301", None, {"a": 1}, "a" * 255]
)
def test_value_that_is_no_part_of_a_name_is_a_dead_letter(name: Any) -> None:
    outcomes = decode([value(name), value("a")], NewTables(SPEC), ["events.a_log"], route_by=TEMPLATE)

    assert codes(outcomes) == [(100, "UNROUTED")]
    assert outcomes.rows["events.a_log"].num_rows == 1
    assert outcomes.new_tables == ()


def test_values_in_lower_case_share_a_table_by_choice_only() -> None:
    apart = decode([value("Push"), value("push")], NewTables(SPEC), route_by=TEMPLATE)
    whole = decode([value("Push"), value("push")], NewTables(SPEC), route_by=replace(TEMPLATE, lower_case=True))

    assert apart.new_tables == ("events.Push_log", "events.push_log")
    assert whole.new_tables == ("events.push_log",)


@given(st.text(max_size=6) | st.sampled_from(["a", "A-1", "a.b", "ß", "\u0130"]), st.booleans())
def test_verify_routes_values_by_a_template_alike(table: str, lower: bool) -> None:
    field = {"name": "to", "table": "events.{value}", "lower_case": lower}
    tables = [{"table": f"events.{name}", "columns": {"id": "long"}} for name in ("a", "a-1", "ß")]
    raw = {"name": "p", "source": {"topics": ["t"]}, "destinations": tables, "route": {"field": field}}
    tell = tables_of(Pipeline.model_validate(raw))
    rule = FieldRoute(("to",), (), lower_case=lower, table="events.{value}")
    names = ("events.a", "events.a-1", "events.ß")
    rows, _ = Router(Route(rule), names).rows_by_table(pa.array([table]))

    assert tell is not None
    assert tell("t", value(table), Message()) == {name for name, own in zip(names, rows, strict=True) if len(own)}
