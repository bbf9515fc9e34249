"""Maintenance as a user asks for it: first a look, then a job of Spark, and nothing when nothing is due."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from frazil.errors import Terminal

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

FILE = """
name: orders
source: {{topics: [{topic}]}}
engine: inline
destinations:
  - {{table: shop.orders, columns: {{id: long}}}}
maintenance:
  engine: {engine}
  compaction: {{min_files: 3}}
"""


def produced(place: Place, number: int) -> None:
    """Send an order, and land it."""
    file = Path(place.root) / "orders.jsonl"
    file.write_text(json.dumps({"id": number}) + "\n", encoding="utf-8")
    place.succeed("produce", place.topic, "--file", str(file), "--partitions", "1")
    place.succeed("run", "orders")


def test_maintenance_does_only_what_is_due(place: Place, engine: str) -> None:
    """The look names the step and its numbers and changes nothing; the job does it; then nothing is due, and no JVM starts."""
    (Path(place.root) / "pipelines" / "orders.yaml").write_text(FILE.format(topic=place.topic, engine=engine))
    for number in range(3):
        produced(place, number)

    steps = ("--table", "shop.orders", "--step", "compaction", "--step", "expiry")
    looked = place.json("maintain", "orders", *steps, "--dry-run")
    done = place.json("maintain", "orders", *steps)
    again = place.succeed("maintain", "orders", *steps)

    (found,) = looked["tables"]
    assert [(step["step"], step["status"]) for step in found["steps"]] == [("compaction", "due"), ("expiry", "skipped")]
    assert found["steps"][0]["reason"] == "3 small files in 1 partition with 3 or more"
    assert (found["before"]["files"], found["after"]["files"]) == (3, 3)
    (table,) = done["tables"]
    assert [step["status"] for step in table["steps"]] == ["done", "skipped"]
    assert (table["before"]["files"], table["after"]["files"]) == (3, 1)
    assert "orders: 0 steps due" in again.stdout
    assert place.json("verify", "orders")["is_clean"]

    refused = place.frazil("maintain", "orders", "--table", "shop.other")
    assert refused.returncode == Terminal.exit_code
    assert "its tables: shop.orders, shop.orders__dead_letters, shop.orders__ledger" in refused.stderr
    assert place.frazil("maintain", "orders", "--step", "tidy").returncode == 2
