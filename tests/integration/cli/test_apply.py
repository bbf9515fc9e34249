"""`frazil apply` as a user starts it: shown, killed, made, told."""

from __future__ import annotations

import signal
from typing import Any

from frazil.errors import Terminal
from frazil.failpoints import VARIABLE

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""


def edit(place: Place, old: str, new: str) -> None:
    file = place.root / "pipelines" / "orders.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_apply_that_is_killed_is_finished_by_the_next_one(place: Place) -> None:
    """A dry run shows the statements; killed after the decision, the rest is made by the next command, once."""
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "10")
    place.succeed("run", "orders")
    edit(place, "amount: int", "amount: {type: long, doc: Cents}\n      town: string")
    edit(place, "dead_letters:", "    partition_by: [day(created_at)]\ndead_letters:")
    refused = place.frazil("run", "orders")
    assert refused.returncode == Terminal.exit_code
    assert "frazil apply orders" in refused.stderr

    shown = place.succeed("apply", "orders", "--dry-run").stdout
    assert shown.splitlines()[:4] == [
        "ALTER TABLE shop.orders ALTER COLUMN amount TYPE bigint",
        "ALTER TABLE shop.orders ALTER COLUMN amount COMMENT 'Cents'",
        "ALTER TABLE shop.orders ADD COLUMN town string",
        "ALTER TABLE shop.orders ADD PARTITION FIELD day(created_at)",
    ]
    killed = place.frazil("apply", "orders", "--reason", "towns", **{VARIABLE: "evolving=kill"})
    assert killed.returncode == -signal.SIGKILL

    done = place.json("apply", "orders")
    assert (done["done"], done["statements"]) == (False, [])
    assert "nothing to change" in place.succeed("apply", "orders").stdout
    (batch,) = [of for of in place.json("history", "orders") if of["kind"] == "apply"]
    assert (batch["reason"], [change["kind"] for change in batch["schema_changes"]["shop.orders"]]) == (
        "towns",
        ["widen", "doc", "add", "partition"],
    )
    place.succeed("run", "orders")
    place.succeed("verify", "orders")
