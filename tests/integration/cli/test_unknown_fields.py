"""Fields that no column takes: whoever looks at a run sees that they were left out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

VALUES = (
    '{"id": "a", "amount": 1}',
    '{"id": "b", "amount": 2, "coupon": "x"}',
    '{"id": "c", "amount": 3, "coupon": "y", "channel": null}',
    '{"id": "d", "amount": "no", "coupon": "z"}',
)
COUNTED = {"records": 2, "names": {"coupon": 2, "channel": 1}}
MESSAGE = "2 records with fields that no column takes (`coupon` 2, `channel` 1)"


def produce(place: Any) -> None:
    lines = place.root / "lines.txt"
    lines.write_text("\n".join(VALUES) + "\n", encoding="utf-8")
    place.succeed("produce", place.topic, "--file", str(lines), "--partitions", "1")


def answer(place: Any, *arguments: str) -> Any:
    done = place.frazil(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_unknown_fields_are_reported(place: Any) -> None:
    """Dry run, run, history and ledger say of how many landed records, and which fields; verify finds nothing wrong."""
    produce(place)

    look = answer(place, "run", "orders", "--dry-run")
    ran = place.frazil("run", "orders")

    assert look["unknown_fields"] == COUNTED
    assert ran.returncode == 0, ran.stderr
    assert MESSAGE in ran.stdout + ran.stderr
    start, batch = answer(place, "history", "orders")
    assert batch["unknown_fields"] == COUNTED
    assert start["unknown_fields"] == {"records": 0, "names": {}}
    assert MESSAGE in place.frazil("history", "orders", COLUMNS="200").stdout
    query = "SELECT records_unknown, unknown_fields FROM shop.orders__ledger WHERE n = 1 AND role = 'destination'"
    (row,) = answer(place, "sql", query)
    assert (row["records_unknown"], json.loads(row["unknown_fields"])) == (2, COUNTED["names"])
    place.succeed("verify", "orders")


@pytest.mark.parametrize("payload", ["redacted", "none"])
def test_redacted_pipeline_keeps_no_field_names(place: Any, payload: str) -> None:
    """Where payloads are secrets, names of fields are not kept; records are counted all the same."""
    file = place.root / "pipelines" / "orders.yaml"
    text = file.read_text(encoding="utf-8")
    chosen = f"dead_letters: {{tolerance: all, payload: {payload}}}"
    file.write_text(re.sub(r"dead_letters: .*", chosen, text), encoding="utf-8")
    produce(place)

    ran = place.frazil("run", "orders", "--json")

    assert json.loads(ran.stdout)["unknown_fields"] == {"records": 2, "names": {}}
    assert "coupon" not in ran.stdout + ran.stderr
