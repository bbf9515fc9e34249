"""`frazil validate --diff` against live tables: what the next run would change or refuse."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""


@pytest.fixture
def ran(place: Place) -> Place:
    """A pipeline that ran once, its files committed as they are."""
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "10")
    place.succeed("run", "orders")
    program = shutil.which("git")
    assert program is not None
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("add", "pipelines", "settings.yaml"),
        ("commit", "-qm", "as it was"),
    ):
        own = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(place.root))
        subprocess.run([program, *own, *arguments], check=True)
    return place


def difference(place: Place, *edits: tuple[str, str]) -> tuple[int, list[dict[str, str]]]:
    """Exit code and effects after edits of the pipeline file, which is put back."""
    file = place.root / "pipelines" / "orders.yaml"
    before = edited = file.read_text()
    for old, new in edits:
        assert old in edited
        edited = edited.replace(old, new, 1)
    file.write_text(edited)
    ended = place.frazil("validate", "--diff", "main", "--json")
    file.write_text(before)
    (difference,) = json.loads(ended.stdout)["pipelines"]
    return ended.returncode, difference["effects"]


def test_refusal_of_next_run_is_shown_before_merge(ran: Place) -> None:
    """A renamed pipeline, and another table for one that has its position, are refused before they are merged."""
    renamed, why = difference(ran, ("name: orders", "name: sales"))
    assert renamed == 1
    assert any(effect["weight"] == "refused" and "Call it orders again" in effect["text"] for effect in why)

    moved, why = difference(ran, ("shop.orders", "shop.other"))
    assert moved == 1
    assert any(effect["weight"] == "refused" and "shop.orders" in effect["text"] for effect in why)
    assert ran.succeed("run", "orders").returncode == 0


def test_ignored_start_is_reported(ran: Place) -> None:
    """By the live position; looking changes nothing."""
    before = ran.json("sql", "FROM shop.orders.snapshots")

    code, change = difference(ran, ("engine: inline", "engine: inline\nstart: latest"))

    texts = [effect["text"] for effect in change]
    assert code == 0, texts
    assert any(text.startswith("start is ignored: the pipeline has a position") for text in texts)
    assert ran.json("sql", "FROM shop.orders.snapshots") == before


def test_statements_are_shown_with_who_makes_them(ran: Place) -> None:
    """Without `evolve` the next run refuses, and `frazil apply` makes them; with it, the run makes those of columns."""
    wider = ("amount: int", "amount: long"), ("dead_letters:", "    sort_by: [amount]\ndead_letters:")

    refused, change = difference(ran, *wider)

    texts = [effect["text"] for effect in change]
    assert refused == 1
    assert "ALTER TABLE shop.orders ALTER COLUMN amount TYPE bigint: by frazil apply orders" in texts
    assert "ALTER TABLE shop.orders WRITE LOCALLY ORDERED BY amount: by frazil apply orders" in texts
    assert any("next: change the columns of the pipeline file, or alter the table to fit it" in text for text in texts)

    code, change = difference(ran, *wider, ("sort_by", "evolve: widen\n    sort_by"))

    texts = [effect["text"] for effect in change]
    assert code == 0, texts
    assert "ALTER TABLE shop.orders ALTER COLUMN amount TYPE bigint: by the next run" in texts
    assert "ALTER TABLE shop.orders WRITE LOCALLY ORDERED BY amount: by frazil apply orders" in texts
