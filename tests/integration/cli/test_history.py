"""`frazil history`: what every batch did, and the files it left."""

from __future__ import annotations

from typing import Any

import pytest

from frazil.generators import payments
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from tests.produce import produce

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""


def test_files_show_offsets_of_their_rows(place: Place, cluster: Cluster) -> None:
    """Per file: partitions, offsets and batch as its rows have them, and a snapshot of the history."""
    create_topic(cluster, place.topic, 3)
    for seed in range(2):
        produce(cluster, place.topic, payments(50, seed=seed))
        place.succeed("run", "orders")
    batches = place.json("history", "orders")

    files = place.json("history", "orders", "--files")

    question = """
        SELECT _frazil_batch AS n, count(*) AS rows, min(_kafka_offset) AS first, max(_kafka_offset) + 1 AS end,
               min(_kafka_partition) AS lowest, max(_kafka_partition) AS highest
        FROM shop.orders GROUP BY ALL ORDER BY n
    """
    expected = place.json("sql", question)
    snapshots = {batch["n"]: batch["snapshot_id"] for batch in batches}
    assert [file["rows"] for file in files] == [row["rows"] for row in expected] == [50, 50]
    for file, row in zip(files, expected, strict=True):
        assert file["batches"] == [row["n"]] * 2
        assert file["offsets"] == [row["first"], row["end"]]
        assert file["partitions"] == [row["lowest"], row["highest"]]
        assert file["topics"] == [place.topic]
        assert file["snapshot_id"] == snapshots[row["n"]]
        assert file["content"] == "data"
    assert sum(file["bytes"] for file in files) == sum(batch["bytes"] for batch in batches)


@pytest.mark.parametrize("width", [80, 120])
def test_file_names_are_whole_on_narrow_page(landed: Place, width: int) -> None:
    """Names and snapshots are whole, whatever the width."""
    (file,) = landed.json("history", "orders", "--files")

    shown = landed.succeed("history", "orders", "--files", COLUMNS=str(width)).stdout

    folder, _, name = file["path"].rpartition("/")
    assert all(text in shown for text in (folder, name, landed.topic, str(file["snapshot_id"]), "990"))
    assert "…" not in shown


def test_phases_of_batch_are_shown(landed: Place) -> None:
    """Where the seconds of a batch went, and in which snapshot of every table it is."""
    (_, batch) = landed.json("history", "orders")
    shown = landed.succeed("history", "orders", "--phases").stdout

    assert {"stage", "audit", "decide", "forward"} <= batch["phases"].keys()
    assert all(f"{phase} {seconds:.2f}" in shown for phase, seconds in batch["phases"].items())
    assert batch["snapshots"].keys() == {"shop.orders", "shop.orders__dead_letters"}
    assert all(f"snapshot {snapshot} of {table}" in shown for table, snapshot in batch["snapshots"].items())


def test_history_without_files_is_no_error(place: Place) -> None:
    """Before the first run there is nothing to show, and no table is made."""
    assert place.json("history", "orders", "--files") == []
    assert place.succeed("history", "orders", "--files").stdout == "orders: 0 files, 0 rows, 0 bytes\n"
    assert Project.load(place.environment).lake("lake").tables() == []
