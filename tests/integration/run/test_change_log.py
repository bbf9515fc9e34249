"""A log of changes, landed and verified: each change once, in its order, whatever is replayed, reset or tampered with."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo

from frazil.run.state.context import EngineNeeded
from frazil.verify.check import verify
from tests.integration.run.conftest import AtFailpoint
from tests.operations import Killed, lake, ledger, replay, reset, send

MakeShop = Callable[..., Any]
LOG = "shop.orders_log"

_FILE = """
    name: orders
    source: {{topics: [{topic}]}}
    engine: inline
    dead_letters: {{tolerance: all}}
    destinations:
      - table: shop.orders_log
        write: history
        identifier: [id]
        changes: {{format: debezium}}
        columns:
          id: {{type: long, required: true}}
          name: string
          op: {{type: string, from: [_cdc, op]}}
"""
_CHANGES = (
    ("c", None, {"id": 1, "name": "a"}),
    ("u", {"id": 1, "name": "a"}, {"id": 2, "name": "a"}),
    ("x", None, {"id": 9, "name": "?"}),
    ("m", None, None),
    ("d", {"id": 2, "name": "a"}, None),
)
ROWS = [
    (0, 0, "upsert", 1, "a", "c"),
    (1, 0, "delete", 1, None, "u"),
    (1, 1, "upsert", 2, "a", "u"),
    (4, 0, "delete", 2, None, "d"),
]


def _logged(shop: MakeShop) -> Any:
    """A shop whose changes are sent, and not landed yet."""
    orders = shop(partitions=1)
    changes = [{"op": op, "before": before, "after": after} for op, before, after in _CHANGES]
    send(orders, {0: [json.dumps(change).encode() for change in changes]})
    return orders.with_pipeline(_FILE.format(topic=orders.topic))


def _rows(shop: Any) -> list[tuple[Any, ...]]:
    names = ("_kafka_offset", "_frazil_place", "_frazil_op", "id", "name", "op")
    return sorted(tuple(row[name] for name in names) for row in shop.rows(LOG))


def _differences(shop: Any) -> list[tuple[str, int | None]]:
    """Kinds and offsets of what verify finds; values were compared."""
    result = verify(shop.project, shop.pipeline)
    assert result.values_compared, result.values_not_compared_because
    return [(difference.kind, difference.offset) for difference in result.differences]


def test_column_declared_later_does_not_stop_change_log(shop: MakeShop) -> None:
    """It is added before the next batch; what was landed without it stays, and comes again with it."""
    orders = _logged(shop)
    late = orders.with_pipeline(_FILE.format(topic=orders.topic).replace("          name: string\n", ""))
    late.run()
    assert "name" not in lake(late).load_table(LOG).schema().column_names
    send(orders, {0: [json.dumps({"op": "c", "before": None, "after": {"id": 3, "name": "c"}}).encode()]})

    orders.run()

    landed = [(*row[:4], None, row[5]) for row in ROWS]
    assert _rows(orders) == [*landed, (5, 0, "upsert", 3, "c", "c")]
    assert _differences(orders) == []
    assert json.loads(ledger(orders)[-1]["schema_changes"]) == [{"path": ["name"], "kind": "add", "type": "string"}]
    replay(orders, "earliest")
    assert _rows(orders) == [*ROWS, (5, 0, "upsert", 3, "c", "c")]
    assert _differences(orders) == []


def test_changes_are_logged_once_and_in_order(shop: MakeShop) -> None:
    """Landed, landed again by a replay, and by a reset: each change is there once, and what tells of no row is counted."""
    orders = _logged(shop)
    result = orders.run()
    assert (result.read, result.written, result.dead, result.filtered) == (5, 3, 1, 1)
    assert _rows(orders) == ROWS
    assert _differences(orders) == []
    replay(orders, "earliest")
    assert _rows(orders) == ROWS
    reset(orders, "earliest")
    orders.run()
    assert _rows(orders) == ROWS
    assert _differences(orders) == []


@pytest.mark.parametrize("point", ["staged", "decide.committed", "record.committing"])
def test_killed_run_logs_changes_once(shop: MakeShop, at_failpoint: AtFailpoint, point: str) -> None:
    """The log is a table like any other: the next run carries on."""
    orders = _logged(shop)
    at_failpoint(point, nth=1 if point == "staged" else 2)  # the first one is of the start position
    with pytest.raises(Killed):
        orders.run()
    orders.run()
    assert _rows(orders) == ROWS


def test_change_log_gets_decided_batch_while_merged_table_waits(shop: MakeShop) -> None:
    """The log has its part of a decided batch while the merged table waits for an engine, once, and nothing is decided on top."""
    orders = _logged(shop)
    text = _FILE.format(topic=orders.topic).replace("engine: inline", "engine: spark").replace(LOG, "shop.orders")
    with_history = orders.with_pipeline(text.replace("write: history", f"write: cdc\n        append_history: {LOG}"))
    assert with_history.pipeline.tables == ("shop.orders", LOG)
    for _ in range(2):
        with pytest.raises(EngineNeeded):
            with_history.run()
        assert _rows(with_history) == ROWS
    assert lake(with_history).load_table("shop.orders").scan().count() == 0
    assert [row["kind"] for row in ledger(with_history)] == ["start"] * len(ledger(with_history))


@pytest.mark.parametrize(
    ("offset", "column", "value", "kind"),
    [
        (1, None, None, "missing"),
        (4, "id", 3, "changed"),
        (0, "_frazil_op", "delete", "changed"),
        (0, "again", None, "duplicate"),
    ],
)
def test_tampered_change_log_is_found(
    shop: MakeShop, offset: int, column: str | None, value: object, kind: str
) -> None:
    """One of two rows of a record is gone, a row says something else, or is there twice: each is found, at its offset."""
    orders = _logged(shop)
    orders.run()
    table = lake(orders).load_table(LOG)
    rows = table.scan(EqualTo("_kafka_offset", offset)).to_arrow()  # type: ignore[call-arg, arg-type]
    row = rows.slice(rows.num_rows - 1)
    if column is None:
        table.delete(f"_kafka_offset = {offset} and _frazil_place = 0")
    elif column == "again":
        table.append(row)
    else:
        table.delete(f"_kafka_offset = {offset}")
        field_index = row.schema.get_field_index(column)
        changed = pa.array([value], row.schema.field(field_index).type)
        table.append(row.set_column(field_index, row.schema.field(field_index), changed))
    assert _differences(orders)[0] == (kind, offset)
