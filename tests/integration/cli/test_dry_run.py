"""`frazil run --dry-run` as a process: what it shows, what it refuses, how places in topics are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""


def test_dry_run_of_new_pipeline_creates_nothing(place: Place) -> None:
    """Before the first run: counts and reasons for people, nothing to query, and a run that lands the same."""
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "500", "--broken-per-thousand", "20")

    look = place.succeed("run", "orders", "--dry-run")
    rows = place.frazil("sql", "SELECT count(*) AS n FROM shop.orders", "--json")
    run = place.json("run", "orders")

    assert "orders never ran: the next run writes its start position first" in look.stdout
    assert "dry run, nothing was landed; looked at 500 of 500 offsets: 500 read (" in look.stdout
    assert f" = {run['written']:,} rows + {run['dead']:,} dead + 0 filtered" in look.stdout
    for code, count in run["dead_codes"].items():
        assert f"dead letters {code}: {count}\n    {place.topic}/" in look.stdout
    assert rows.returncode != 0


def test_dry_run_without_new_records_says_what_becomes_of_the_tables(place: Place) -> None:
    """A declared column is named as a change; a type that the table can't take is refused, as the run refuses it."""
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "5")
    place.succeed("run", "orders")
    file = place.root / "pipelines" / "orders.yaml"
    text = file.read_text(encoding="utf-8").replace("    columns:", "    evolve: widen\n    columns:")

    file.write_text(text.replace("amount: int", "amount: int\n      weight: double"), encoding="utf-8")
    added = place.succeed("run", "orders", "--dry-run")
    file.write_text(text.replace("amount: int", "amount: boolean"), encoding="utf-8")
    looked_at, run = place.frazil("run", "orders", "--dry-run"), place.frazil("run", "orders")

    assert "looked at 0 of 0 offsets" in added.stdout
    assert "  a run would change table shop.orders first: add weight double" in added.stdout
    assert (looked_at.returncode, run.returncode) == (78, 78)
    assert "FRZ-304" in looked_at.stderr
    assert "FRZ-304" in run.stderr


def test_dry_run_with_json_prints_one_line(landed: Place, tmp_path: Path) -> None:
    """With --json one line, ranges by partition; what is landed can be looked at again, part by part."""
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({landed.topic: {"0": 3, "2": 5}}), encoding="utf-8")

    new, whole, part = (
        landed.json("run", "orders", "--dry-run", *places)
        for places in ((), ("--from", "earliest"), ("--from", "earliest", "--to", str(offsets)))
    )

    assert (new["offsets"], new["partitions"]) == (0, [])
    assert (whole["counts"]["read"], whole["counts"]["written"], whole["counts"]["dead"]) == (1000, 990, 10)
    assert [(p["partition"], p["start"], p["end"], p["counts"]["read"]) for p in part["partitions"]] == [
        (0, 0, 3, 3),
        (2, 0, 5, 5),
    ]


def test_range_without_dry_run_is_refused(landed: Place, tmp_path: Path) -> None:
    """A run goes on at the position; a place that is none is named, and so is a file that is not there."""
    gone_file = tmp_path / "gone.json"

    refused = landed.frazil("run", "orders", "--from", "earliest")
    nowhere = landed.frazil("run", "orders", "--dry-run", "--from", "yesterday")
    no_file = landed.frazil("run", "orders", "--dry-run", "--to", str(gone_file))

    assert refused.returncode == 2
    assert "--dry-run" in refused.stderr
    assert (nowhere.returncode, no_file.returncode) == (78, 78)
    assert "'yesterday' is not a position in a topic" in nowhere.stderr
    assert str(gone_file) in no_file.stderr
