"""Random streams of changes in each format, compared with a dict as the model of the source."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.pipeline.models.pipeline_file import Pipeline
from tests.unit.records.cdc.landing import TABLE, landed, pipeline, refused

Row = dict[str, Any]
Change = tuple[str, Row | None, Row | None]
"""insert, update or delete; the row before, and after."""

IDS = st.integers(1, 4)
NAMES = st.sampled_from(["Ann", "Bob", None])
WISHES = st.lists(st.tuples(st.sampled_from(["put", "move", "delete"]), IDS, IDS, NAMES), max_size=25)


def changes_of(wishes: list[tuple[str, int, int, str | None]]) -> tuple[list[Change], dict[int, Row]]:
    """The changes that a database makes of these wishes, and its final table."""
    table: dict[int, Row] = {}
    changes: list[Change] = []
    for wish, number, second_number, name in wishes:
        before = table.get(number)
        if wish == "put":
            after = {"id": number, "name": name}
            changes.append(("update" if before else "insert", before, after))
            table[number] = after
        elif before and wish == "delete":
            changes.append(("delete", table.pop(number), None))
        elif before and second_number not in table:
            after = {"id": second_number, "name": name}
            changes.append(("update", table.pop(number), after))
            table[second_number] = after
    return changes, table


def changed(before: Row, after: Row) -> Row:
    """The fields of a row that a change changed, with their values before."""
    return {name: value for name, value in before.items() if value != after[name]}


def debezium(kind: str, before: Row | None, after: Row | None) -> Row:
    """With REPLICA IDENTITY FULL, or a binlog of full rows."""
    return {"op": kind[0].replace("i", "c"), "before": before, "after": after}


def debezium_with_keys(kind: str, before: Row | None, after: Row | None) -> Row:
    """With REPLICA IDENTITY DEFAULT: the key of the row before, if it was deleted or changed."""
    is_old_key = before and (after is None or before["id"] != after["id"])
    return debezium(kind, {"id": before["id"], "name": None} if before and is_old_key else None, after)


def dms(kind: str, before: Row | None, after: Row | None) -> Row:
    """With a before image of the key."""
    image = {"before-image": {"id": before["id"]}} if before and after else {}
    return {"data": after or before, **image, "metadata": {"operation": kind}}


def maxwell(kind: str, before: Row | None, after: Row | None) -> Row:
    """An update has the changed fields."""
    old = {"old": changed(before, after)} if before and after else {}
    return {"type": kind, "data": after or before, **old}


def canal(kind: str, before: Row | None, after: Row | None) -> Row:
    """The same, as a list."""
    row = {name: None if value is None else str(value) for name, value in (after or before or {}).items()}
    old = changed(before, after) if before and after else None
    text = None if old is None else [{name: None if value is None else str(value) for name, value in old.items()}]
    return {"type": kind.upper(), "isDdl": False, "data": [row], "old": text}


def op_column(kind: str, before: Row | None, after: Row | None) -> Row:
    """With both images."""
    return {"op": kind, "new": after, "old": before}


WORDS = {word: [word] for word in ("insert", "update", "delete")}
OWN = {"format": "op_column", "op": "op", "row": "new", "before": "old", "values": WORDS}
FORMATS: list[tuple[Any, Callable[..., Row]]] = [
    ({"format": "debezium"}, debezium),
    ({"format": "debezium"}, debezium_with_keys),
    ({"format": "dms"}, dms),
    ({"format": "maxwell"}, maxwell),
    ({"format": "canal"}, canal),
    (OWN, op_column),
]


def merged(declared: Pipeline, rows_sent: list[Row], cuts: list[int]) -> dict[int, Row]:
    """The table after the staged rows of all batches are applied in their order."""
    table: dict[int, Row] = {}
    edges = sorted({0, len(rows_sent), *(cut for cut in cuts if cut < len(rows_sent))})
    for start, end in itertools.pairwise(edges):
        outcomes = landed(declared, rows_sent[start:end], first_offset=start)
        assert refused(outcomes) == []
        rows = outcomes.rows[TABLE].to_pylist()
        for row in sorted(rows, key=lambda row: (row["_kafka_offset"], row["_frazil_place"])):
            if row["_frazil_op"] == "delete":
                table.pop(row["id"], None)
            else:
                table[row["id"]] = {"id": row["id"], "name": row["name"]}
    return table


@pytest.mark.parametrize(("changes", "tell"), FORMATS)
@given(wishes=WISHES, cuts=st.lists(st.integers(1, 24), max_size=3))
@settings(max_examples=25, deadline=None)
def test_merged_table_equals_its_source(
    changes: Any, tell: Callable[..., Row], wishes: list[tuple[str, int, int, str | None]], cuts: list[int]
) -> None:
    """Whatever the changes, their format and their batches are, the table is equal to the source at the end."""
    happened, table = changes_of(wishes)
    assert merged(pipeline(changes=changes), [tell(*change) for change in happened], cuts) == table
