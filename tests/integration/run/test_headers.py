"""CloudEvents in binary mode: headers fill columns and choose the table, whatever ends a run, and verify reads them itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyiceberg.types import StringType

from frazil.batch.changes import LetterChoice
from frazil.kafka.client.cluster import Header, OutgoingRecord
from frazil.verify.check import verify
from tests.integration.run.conftest import AtFailpoint
from tests.letters import run_dead_letter_replay
from tests.operations import Killed, assert_clean, lake, letters, replay
from tests.produce import produce
from tests.tampering.pipelines import EditedTable

MakeShop = Callable[..., Any]

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
dead_letters: {{tolerance: all}}
destinations:
  - table: shop.orders
    columns:
      id: {{type: long, required: true}}
      ce_id: {{type: string, part: header, required: {required}}}
      at: {{type: timestamptz, part: header, from: ce_time}}
      raw: {{type: binary, part: header, from: trace}}
  - table: shop.visits
    evolve: add
    columns:
      ce_id: {{type: string, part: header}}
      page: string
route:
  static: {{part: header, field: ce_type, tables: {{shop.orders: 'order\\..*', shop.visits: visit}}}}
"""
TIME = b"2026-01-02T03:04:05Z"


def event(number: int, kind: bytes, *headers: Header, value: bytes | None = None) -> OutgoingRecord:
    body = b'{"id": %d, "page": "/%d", "ce_id": "of the value"}' % (number, number) if value is None else value
    return OutgoingRecord(None, body, (("ce_type", kind), *headers))


def events() -> Sequence[OutgoingRecord]:
    """Orders at 0 and 1, a visit at 2; without a required header, with a bad time, with a text that is none, unrouted, broken."""
    many = tuple((f"h{number}", b"x") for number in range(2_000))
    first = (("ce_id", b"ignored"), ("ce_time", TIME), ("trace", b"\xff\x00"), ("ce_id", b"a"))
    return [
        event(0, b"order.made", *first),
        event(1, b"order.paid", ("ce_id", b"b"), ("ce_time", None), ("", b"unnamed"), *many),
        event(2, b"visit", ("ce_id", b"c")),
        event(3, b"order.made"),
        event(4, b"order.made", ("ce_id", b"d"), ("ce_time", b"yesterday")),
        event(5, b"visit", ("ce_id", b"\xff")),
        event(6, b"\xff"),
        event(7, b"visit", value=b"{"),
    ]


@pytest.fixture
def orders(shop: MakeShop) -> Any:
    plain = shop(partitions=1)
    pipeline = plain.with_pipeline(FILE.format(topic=plain.topic, required="true"))
    produce(pipeline.cluster, pipeline.topic, [*events()])
    return pipeline


def rows(orders: Any, table: str, *names: str) -> list[tuple[Any, ...]]:
    landed_rows = lake(orders).load_table(table).scan().to_arrow().sort_by("_kafka_offset")
    return [tuple(row.values()) for row in landed_rows.select(["_kafka_offset", *names]).to_pylist()]


def assert_landed(orders: Any) -> None:
    first, second = rows(orders, "shop.orders", "ce_id", "raw", "at")
    assert first[:3] == (0, "a", b"\xff\x00")
    assert first[3].isoformat() == "2026-01-02T03:04:05+00:00"
    assert second == (1, "b", None, None)
    assert rows(orders, "shop.visits", "ce_id", "page") == [(2, "c", "/2")]
    assert [offset for _, offset, _ in letters(orders)] == [3, 4, 5, 6, 7]


def test_headers_land_once_and_verify_is_clean(orders: Any) -> None:
    orders.run()

    assert_landed(orders)
    verification = verify(orders.project, orders.pipeline)
    assert verification.is_clean, list(map(str, verification.differences))
    assert (verification.values_compared, verification.cells_not_compared) == (True, {})


@pytest.mark.short("follow.committed-2")
@pytest.mark.parametrize(
    ("point", "nth"), [("staged", 1), ("decide.committed", 1), ("follow.committed", 2), ("record.committing", 1)]
)
def test_killed_run_lands_headers_once(orders: Any, at_failpoint: AtFailpoint, point: str, nth: int) -> None:
    at_failpoint(point, nth=nth)
    with pytest.raises(Killed):
        orders.run()

    orders.run()

    assert_landed(orders)
    assert_clean(orders)


@pytest.mark.parametrize(("column", "altered"), [("ce_id", "x"), ("raw", b"x"), ("at", None)])
def test_altered_cell_of_a_header_is_found(orders: Any, column: str, altered: object) -> None:
    orders.run()
    table = EditedTable(lambda: lake(orders).load_table("shop.orders"))
    table.overwrite(lambda row: row | ({column: altered} if row["_kafka_offset"] == 0 else {}))

    (difference,) = verify(orders.project, orders.pipeline).differences

    assert (difference.kind, difference.offset) == ("changed", 0)
    assert f"{column}=" in difference.expected


def test_replayed_dead_letters_have_their_headers(orders: Any) -> None:
    orders.run()
    text = FILE.format(topic=orders.topic, required="false").replace("at: {type: timestamptz", "at: {type: string")
    with lake(orders).load_table("shop.orders").update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("ce_id")
        update.delete_column("at")
    with lake(orders).load_table("shop.orders").update_schema() as update:
        update.add_column("at", StringType())
    lenient = orders.with_pipeline(text)

    run_dead_letter_replay(lenient, LetterChoice())

    replayed = [row for row in rows(lenient, "shop.orders", "ce_id", "at") if row[0] in (3, 4)]
    assert replayed == [(3, None, None), (4, "d", "yesterday")]
    assert_clean(lenient)


def test_replay_from_kafka_fills_headers_again(orders: Any) -> None:
    orders.run()

    replay(orders, "earliest")

    assert_landed(orders)
    assert_clean(orders)
