"""`frazil doctor` on a project that is well, and on one where something is wrong in each place that it looks at."""

from __future__ import annotations

import json
import venv
from typing import Any

import pytest


def checks(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["check"]: check for check in report["checks"]}


@pytest.mark.parametrize("options", [(), pytest.param(("--spark",), marks=pytest.mark.full)], ids=["quick", "spark"])
def test_healthy_project_gets_no_advice(landed: Any, options: tuple[str, ...]) -> None:
    """Every check of a project that lands is well, its executors' too, and the storage holds nothing of the look."""
    before = sorted((landed.root / "home" / "warehouse").rglob("*"))

    report = landed.json("doctor", *options)

    by_name = checks(report)
    assert report["ok"]
    assert {name: check["found"] for name, check in by_name.items() if check["state"] == "failed"} == {}
    assert by_name["position of orders"]["found"].startswith("batch 1")
    assert "which may be read" in by_name["topics of orders"]["found"]
    assert "no record has a timestamp in the future" in by_name["clock of cluster local"]["found"]
    assert not options or "answered, with Python" in by_name["executors of spark"]["found"]
    assert sorted((landed.root / "home" / "warehouse").rglob("*")) == before


def test_each_fault_of_broken_project_is_named(place: Any, broker: str) -> None:
    """A cluster that is away, a missing topic, storage that can't be written and executors without packages are each named, with what to do."""
    bare = place.root / "bare"
    venv.create(bare)
    catalog = {"uri": "sqlite:///${local:home}/catalog.db", "warehouse": f"file://{place.root}/warehouse"}
    settings = {
        "clusters": {"local": {"bootstrap_servers": broker}, "away": {"bootstrap_servers": "127.0.0.1:1"}},
        "catalogs": {
            "lake": catalog,
            "full": catalog | {"warehouse": f"file://{place.root}/settings.yaml/below-a-file"},
        },
        "engines": {"spark": {"conf": {"spark.pyspark.python": str(bare / "bin" / "python")}}},
    }
    (place.root / "settings.yaml").write_text(json.dumps(settings))

    ended = place.frazil("doctor", "--spark", "--json")

    by_name = checks(json.loads(ended.stdout))
    assert ended.returncode == 1
    assert {name for name, check in by_name.items() if check["state"] == "failed"} == {
        "cluster away", "topics of orders", "catalog full", "executors of spark",
    }  # fmt: skip
    assert f"has no topic '{place.topic}'" in by_name["topics of orders"]["found"]
    assert "No module named" in by_name["executors of spark"]["found"]
    assert "packed archive" in by_name["executors of spark"]["next_step"]
