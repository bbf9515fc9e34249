"""Tables of an older Frazil, and of a newer one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from frazil.batch.manifest import Manifest
from frazil.errors import Terminal
from frazil.iceberg.catalog.table import metadata_path, read_text, write_text
from frazil.iceberg.commit.summary_state import DONE_KEY, MANIFEST_KEY, POSITION_KEY, TABLES_KEY
from frazil.iceberg.ledger.ledger import FORMAT_KEY
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from tests.integration.conftest import Shop
from tests.integration.run import older
from tests.operations import (
    LEDGER,
    LETTERS,
    ORDERS,
    assert_clean,
    bad,
    drop,
    lake,
    landed,
    ledger,
    letters,
    order,
    position,
    repair,
    replay,
    roll_back,
    send,
    to_table,
)
from tests.produce import produce

MakeShop = Callable[..., Any]

POSITION, DONE, TABLES = (key.format("orders") for key in (POSITION_KEY, DONE_KEY, TABLES_KEY))

LATER_COLUMNS = ("lost_from",)
"""Columns of the ledger that tables of commit da6fd3b lack; the dead letters have all of theirs."""


def make_old(shop: Any) -> None:
    """Take from the ledger the columns that came later."""
    with lake(shop).load_table(LEDGER).update_schema() as update:
        for column in LATER_COLUMNS:
            update.delete_column(column)


def test_older_ledger_gets_its_columns_by_the_first_run(shop: MakeShop) -> None:
    """Batches and replays land as before; the old rows have nulls there."""
    orders = landed(shop, 1)
    make_old(orders)
    assert not {*LATER_COLUMNS} & {*lake(orders).load_table(LEDGER).schema().column_names}
    send(orders, {0: [order(4), bad(5)]})

    assert orders.run().read == 2

    assert all({*LATER_COLUMNS} <= row.keys() for row in ledger(orders))
    assert [offset for _, offset, _ in letters(orders)] == [1, 3, 5]
    replay(orders, "earliest")
    assert [offset for _, offset, _ in letters(orders)] == [1, 3, 5]
    assert_clean(orders)


def test_reset_to_the_table_gives_older_tables_their_columns(shop: MakeShop) -> None:
    """Also where it is the first command of the new version: a rollback is mended, and stands in the ledger."""
    orders = landed(shop, 2)
    make_old(orders)
    roll_back(orders, ORDERS)

    to_table(orders)

    assert [row["kind"] for row in ledger(orders)][-1] == "rewind"
    assert orders.run().read == 4
    assert_clean(orders)


@pytest.mark.embedded
def test_tables_that_the_first_frazil_wrote_go_on(
    shop: MakeShop, cluster: Cluster, tmp_path: Path, home_at: Callable[[Path], Path]
) -> None:
    """Really written by it: batches go on, a replay finds its rows, a lost ledger is written again, metadata files stay."""
    orders = shop(partitions=1)
    name = orders.topic
    create_topic(cluster, older.TOPIC, 1, {"retention.ms": "-1"})
    text = (orders.project.pipelines_folder / "orders.yaml").read_text().replace(name, older.TOPIC)
    orders = Shop(orders.with_pipeline(text).project, cluster, older.TOPIC)
    produce(cluster, older.TOPIC, older.records())
    facts = observe(cluster, [older.TOPIC])
    older.extract(home_at(tmp_path / "home"), facts.cluster_id, facts.topics[older.TOPIC].id)
    assert (position(orders).n, position(orders).topics[older.TOPIC].next) == (4, (12,))
    assert_clean(orders)

    send(orders, {0: [order(12), bad(13)]})
    assert orders.run().read == 2
    replay(orders, "earliest")

    assert [offset for _, offset, _ in letters(orders)] == [1, 3, 5, 7, 9, 11, 13]
    assert orders.ids() == [0, 2, 4, 6, 8, 10, 12]
    assert_clean(orders)
    drop(orders, LEDGER)
    repair(orders, LEDGER)
    assert [row["kind"] for row in ledger(orders) if row["table"] == ORDERS][:7] == [
        *("start", "ingest", "ingest", "ingest", "replay", "ingest", "replay")
    ]
    enabled = "write.metadata.delete-after-commit.enabled"
    assert {lake(orders).load_table(table).properties[enabled] for table in (ORDERS, LETTERS, LEDGER)} == {"false"}
    assert_clean(orders)


def make_snapshots_old(shop: Any) -> None:
    """Let each snapshot carry the whole position, or what the ledger knows of all tables, as the first Frazil did."""
    for name in (ORDERS, LEDGER):
        table = lake(shop).load_table(name)
        body = json.loads(table.metadata.model_dump_json())
        for summary in (snapshot["summary"] for snapshot in body["snapshots"]):
            if POSITION in summary:
                summary[POSITION] = Manifest.from_json(read_text(table, summary[MANIFEST_KEY])).position.to_json()
            if DONE in summary:
                summary[TABLES] = json.loads(table.properties[TABLES])["value"]
        path = metadata_path(table, f"99999-{uuid4()}.metadata.json")
        write_text(table, path, json.dumps(body))
        lake(shop)._catalog.drop_table(name)
        lake(shop)._catalog.register_table(name, path)


def summaries(shop: Any, table: str) -> list[dict[str, str]]:
    return [snapshot.summary.additional_properties for snapshot in lake(shop).load_table(table).metadata.snapshots]


def test_snapshots_of_an_older_frazil_are_read(shop: MakeShop) -> None:
    """Batches go on behind them, carry what they moved alone, and a rollback brings the older position back."""
    orders = landed(shop, 2)
    assert [POSITION in summary for summary in summaries(orders, ORDERS)] == [True] * 3
    assert not any(TABLES in summary for summary in summaries(orders, LEDGER))
    make_snapshots_old(orders)
    before = position(orders)
    send(orders, {0: [order(8), bad(9)]})

    assert orders.run().read == 2

    assert (position(orders).n, position(orders).topics[orders.topic].start) == (3, before.topics[orders.topic].next)
    assert summaries(orders, ORDERS)[-1][POSITION] == position(orders).moves_json()
    assert not any(TABLES in summary for summary in summaries(orders, LEDGER)[-1:])
    assert_clean(orders)
    roll_back(orders, ORDERS)
    assert position(orders) == before


@pytest.mark.parametrize("table", [LEDGER, LETTERS])
def test_tables_of_newer_frazil_are_refused(shop: MakeShop, table: str) -> None:
    """What a newer one uses otherwise is left alone, and the error says which table and what to do."""
    orders = landed(shop, 1)
    with lake(orders).load_table(table).transaction() as transaction:
        transaction.set_properties({FORMAT_KEY: "2"})
    send(orders, {0: [order(4)]})

    with pytest.raises(Terminal, match=f"table {table} of version 2 was found, written by a newer Frazil"):
        orders.run()
