"""Undeclared records of real systems: which fields get columns, in which order, and how the rest is counted."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from frazil.batch.facts import Staged
from frazil.records.decoder.decode import Decoder
from frazil.records.evolution.schema_requests import merge_changes
from frazil.records.evolution.types import leaf_paths
from frazil.records.model.spec import Evolution
from tests.format_specs import format_spec
from tests.unit.records.evolution import webhooks
from tests.unit.records.evolution.evolving import TABLE, Landed, land, spec, transformed
from tests.unit.records.kafka_batches import kafka_batch

EVENTS = {
    "pull_request": webhooks.pull_request_event(),
    "push": webhooks.push_event(),
    "traces": webhooks.otlp_traces(),
    "logs": webhooks.otlp_logs(),
}


def leaf_count(landed: Landed) -> int:
    """Columns, those in structs counted one by one."""
    return sum(1 for column in landed.spec.columns for _ in leaf_paths(column.type))


def unknown_counts(landed: Landed) -> dict[str, int]:
    """What is counted of fields without a column."""
    return dict(landed.tasks[0].unknown_fields.names)


def without_nothing(value: Any) -> Any:
    """A value without what tells no type: null, and what holds nothing else."""
    if isinstance(value, dict):
        present = {name: without_nothing(item) for name, item in value.items()}
        return {name: item for name, item in present.items() if item is not None} or None
    if isinstance(value, list):
        return [without_nothing(item) for item in value] or None
    return value


@pytest.mark.parametrize("name", EVENTS)
def test_document_of_a_real_system_lands_in_columns_with_the_defaults(name: str) -> None:
    """All of it is in columns, equal, and nothing in `_rescued`: GitHub's webhooks, OTLP's traces and logs."""
    landed = land([[EVENTS[name]] * 3], spec())
    assert landed.codes == []
    assert "_rescued" not in landed.columns
    assert {json.dumps(without_nothing(row)) for row in landed.rows} == {json.dumps(without_nothing(EVENTS[name]))}


def test_webhooks_of_one_topic_share_a_table() -> None:
    """Pushes and pull requests in one topic: the columns of both fit the defaults, in the order of their fields."""
    landed = land([[EVENTS["push"], EVENTS["pull_request"]]], spec())
    assert "_rescued" not in landed.columns
    assert 500 < leaf_count(landed) <= Evolution().max_columns
    assert list(landed.columns)[:4] == ["action", "ref", "before", "number"]


def test_fields_at_the_top_get_columns_before_those_of_a_large_struct() -> None:
    """`id`, `type` and `sender` have columns though `aaa` alone has more fields than there may be columns."""
    documents = {
        "aaa": {f"f{number}": number for number in range(500)},
        "id": 7,
        "type": "x",
        "sender": {"login": "ann", "id": 1},
    }
    landed = land([[documents, documents]], spec((), Evolution(max_columns=500)))

    assert list(landed.columns) == ["aaa", "id", "type", "sender", "_rescued"]
    assert landed.columns["aaa"].num_fields == 496
    assert landed.columns["sender"] == pa.struct([("login", pa.string()), ("id", pa.int64())])
    assert (landed.rows[0]["id"], landed.rows[0]["type"], landed.rows[0]["sender"]["login"]) == (7, "x", "ann")
    assert json.loads(landed.rows[0]["_rescued"]) == {"aaa": documents["aaa"]}


@pytest.mark.parametrize("through", [False, True])
def test_fields_in_the_rescued_column_are_counted_by_path(through: bool) -> None:
    """Whoever looks at a run sees which fields have no column of their own, and how many records have them."""
    evolving_spec = spec((), Evolution(max_columns=2))
    documents = [{"id": 1, "z": {"a": 1, "b": 2}, "a.b": 1}, {"id": 1, "z": {"a": 1, "b": 2}}, {"id": 2, "z": {"a": 1}}]
    landed = land([documents], transformed(evolving_spec) if through else evolving_spec)

    assert [column for column in landed.columns if column != "_rescued"] == ["id", "z"]
    assert unknown_counts(landed) == {"_rescued: z.b": 2, "_rescued: a.b": 1}
    assert landed.tasks[0].unknown_fields.records == 2


def test_names_of_rescued_fields_are_counted_in_a_bounded_number() -> None:
    """A record whose keys are data brings neither a long line nor a long list."""
    documents = {f"{number:05}" + "x" * 300: number for number in range(3_000)}
    landed = land([[documents]], spec((), Evolution(max_columns=5)))
    assert len(unknown_counts(landed)) <= 100
    assert len(landed.tasks[0].unknown_fields.summary or "") < 600


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_columns_are_ordered_by_their_place_in_the_records(shift: int) -> None:
    """In the record where a field stands first; metadata of connectors (`__op`) comes last; tasks make no difference."""
    documents = [{"__op": "c", "b": 1, "a": {"z": 1, "__ts": 1, "y": 2}}, {"c": 1, "b": 2}, {"a": {"x": 1}, "d": None}]
    tasks = [documents[shift:], documents[:shift]]
    landed = land(tasks, spec())
    assert list(landed.columns) == ["a", "c", "b", "__op"]
    assert [each.name for each in landed.columns["a"]] == ["x", "z", "y", "__ts"]


def test_columns_of_a_schema_are_in_its_order_and_metadata_last() -> None:
    """Also where versions of the schema follow each other, of which the newer one has a field before the metadata."""
    versions = [["id", "name", "amount", "__lsn", "__deleted"], ["id", "name", "amount", "note", "__lsn", "__deleted"]]
    landed = None
    for names in versions:
        schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": "long"} for name in names]}
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), dict.fromkeys(names, 1))
        columns = list(landed.spec.columns) if landed else []
        landed = land([[buffer.getvalue()]], spec(columns, format=format_spec("avro", schema=json.dumps(schema))))
        if columns:
            assert list(landed.columns) == [*versions[0], "note"]
        else:
            assert list(landed.columns) == names


def test_column_requests_keep_the_order_of_fields() -> None:
    """Tasks send in JSON the columns that they need: types with the positions of their fields."""
    landed = land([[{"b": {"z": 1, "a": 2}}], [{"x": 1, "a": {"q": [1.5]}}]], spec())
    evolving_spec = spec()
    demands = []
    for task in ([{"b": {"z": 1, "a": 2}}], [{"x": 1, "a": {"q": [1.5]}}]):
        outcomes = Decoder({TABLE: evolving_spec}, None, 1).decode(
            kafka_batch([json.dumps(each).encode() for each in task])
        )
        staged = Staged.from_json(Staged(demands=outcomes.demands).to_json())
        demands += staged.demands[TABLE]
    assert merge_changes(demands, evolving_spec) == landed.rounds[0]
