"""A table that changes are merged into, as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Retryable, Terminal
from frazil.failpoints import VARIABLE

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

FILE = """
name: customers
engine: {engine}
source: {{topics: [{topic}]}}
destinations:
  - table: shop.customers
    columns: {{id: {{type: long, required: true}}, name: string}}
    write: cdc
    identifier: [id]
    partition_by: ["bucket(4, id)"]
    changes: {{format: op_column, op: op, row: after, before: before, values: {{insert: [c], update: [u], delete: [d]}}}}
"""


def change(op: str, number: int, name: str | None = None, before: int | None = None) -> str:
    """A change as its record tells it."""
    after = None if op == "d" else {"id": number, "name": name}
    return json.dumps({"op": op, "after": after, "before": {"id": number if before is None else before}})


def produce(place: Place, *changes: str) -> None:
    """Send changes, all to one partition."""
    file = Path(place.root) / "changes.jsonl"
    file.write_text("\n".join(changes) + "\n", encoding="utf-8")
    place.succeed("produce", place.topic, "--file", str(file), "--partitions", "1")


def rows(place: Place) -> list[tuple[int, str]]:
    """What the table holds."""
    rows = place.json("sql", "SELECT id, name FROM shop.customers ORDER BY id")
    return [(row["id"], row["name"]) for row in rows]


@pytest.mark.timeout(900)
def test_killed_jobs_neither_lose_changes_nor_restore_rows(place: Place, engine: str) -> None:
    """Killed before and behind the table's commit: the next run finishes, another is idle, and old ranges stay out."""
    (Path(place.root) / "pipelines" / "customers.yaml").write_text(FILE.format(topic=place.topic, engine=engine))
    produce(place, *(change("c", number, "a") for number in range(20)))

    killed = place.frazil("run", "customers", **{VARIABLE: "branch.staged=kill"})
    assert killed.returncode == Retryable.exit_code, killed.stderr
    produce(place, change("u", 1, "b"), change("d", 2), change("u", 30, "moved", before=3))
    killed = place.frazil("run", "customers", **{VARIABLE: "follow.committed:2=kill"})
    assert killed.returncode == Retryable.exit_code, killed.stderr
    finished = place.succeed("run", "customers")
    expected = {number: "a" for number in range(20) if number not in (2, 3)} | {1: "b", 30: "moved"}
    assert dict(rows(place)) == expected, finished.stderr
    assert "nothing new" in place.succeed("run", "customers").stderr

    refused = place.frazil("replay", "customers", "--from", "earliest", "--reason", "a test", "--yes")
    assert refused.returncode == Terminal.exit_code
    assert "deletes: hard" in refused.stderr
    assert dict(rows(place)) == expected
