"""Tables that changes are merged into, held against their topic by `frazil verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from frazil.runtime.home import Home
from frazil.runtime.jars import fetch

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

FILE = """
name: customers
source: {{topics: [{topic}]}}
destinations:
  - table: shop.hard
    columns: {{id: {{type: long, required: true}}, name: string}}
    write: cdc
    identifier: [id]
    merge: copy-on-write
    changes: {{format: debezium}}
  - table: shop.soft
    columns: {{id: {{type: long, required: true}}, name: string, place: {{type: string, from: [_cdc, order]}}}}
    write: cdc
    identifier: [id]
    order_by: place
    deletes: soft
    changes: {{format: debezium}}
"""


def event(op: str, place: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    return json.dumps({"op": op, "before": before, "after": after, "source": {"lsn": place}})


def ann(number: int, name: str = "Ann") -> dict[str, Any]:
    return {"id": number, "name": name}


FIRST = [*(event("c", number, None, ann(number)) for number in range(1, 9)), event("m", 9, None, None)]
SECOND = [
    event("u", 20, ann(1), ann(1, "Bob")),
    event("d", 21, ann(2), None),
    event("u", 22, ann(3), ann(30)),
    event("d", 23, None, None),
    event("c", 24, None, ann(2, "again")),
    event("d", 25, ann(4), None),
]


def produce(place: Place, changes: list[str]) -> None:
    file = Path(place.root) / "changes.jsonl"
    file.write_text("\n".join(changes) + "\n", encoding="utf-8")
    place.succeed("produce", place.topic, "--file", str(file), "--partitions", "1")


def verified(place: Place) -> Any:
    return json.loads(place.frazil("verify", "customers", "--json").stdout)


def table(place: Place, name: str) -> Table:
    home = Path(place.root) / "home"
    return SqlCatalog("lake", uri=f"sqlite:///{home}/catalog.db", warehouse=f"file://{home}/warehouse").load_table(name)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_verify_reports_table_that_differs_from_its_changes(place: Place) -> None:
    """Clean after deletes, moved keys and a dead letter of two tables; a row that somebody took out is found."""
    fetch(Home.resolve(), "spark")
    file = FILE.format(topic=place.topic)
    (Path(place.root) / "pipelines" / "customers.yaml").write_text(file)
    for changes in (FIRST, SECOND):
        produce(place, changes)
        place.succeed("run", "customers")

    report = verified(place)
    assert report["differences"] == []
    assert report["is_clean"]
    assert [(partition["rows"], partition["letters"], partition["filtered"]) for partition in report["partitions"]] == [
        (7, 1, 1),
        (9, 1, 1),
    ]
    refused = place.frazil("verify", "customers", "--from", "latest")
    assert "without --from and --to" in refused.stderr

    table(place, "shop.hard").delete(EqualTo("id", 5))
    differences = verified(place)["differences"]
    assert [(difference["table"], difference["kind"], difference["offset"]) for difference in differences] == [
        ("shop.hard", "missing", 4)
    ]
