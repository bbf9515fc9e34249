"""A table that only Spark can write, as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Retryable, Terminal
from frazil.failpoints import VARIABLE
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch

pytestmark = pytest.mark.full

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

FILE = """
name: docs
source: {{topics: [{topic}]}}
destinations:
  - table: shop.docs
    columns: {{doc: {{type: variant, from: []}}}}
"""


def test_killed_job_neither_loses_nor_doubles_documents(place: Place) -> None:
    """One destination, by Spark only: killed between decision and table, the next run finishes it, the one after is idle."""
    fetch(Home.resolve(), "spark")
    (Path(place.root) / "pipelines" / "docs.yaml").write_text(FILE.format(topic=place.topic))
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "200")

    place.succeed("plan", "docs")

    killed = place.frazil("run", "docs", **{VARIABLE: "decide.committed=kill"})
    assert killed.returncode == Retryable.exit_code, killed.stderr
    planned = place.json("plan", "docs")
    assert (planned["records"], planned["plan"] is None) == (0, False)
    finished = place.succeed("run", "docs")
    assert "needs Spark" in finished.stderr
    idle = place.succeed("run", "docs")

    assert "nothing new" in idle.stderr
    assert place.json("sql", "SELECT count(*) AS n FROM shop.docs") == [{"n": 200}]
    refused = place.frazil("sql", "SELECT doc FROM shop.docs")
    assert "column doc is a variant, which only an engine can read" in refused.stderr
    checked = json.loads(place.frazil("verify", "docs", "--json").stdout)
    assert checked["differences"] == []
    assert checked["is_clean"]
    assert "shop.docs.doc is a variant" in checked["values_not_compared_because"]


SEVERAL = """
name: docs
source: {{topics: [{topic}]}}
destinations:
  - {{table: shop.ids, columns: {{id: string}}}}
"""


def test_batch_of_a_table_that_the_edited_file_lacks_waits_for_its_return(place: Place) -> None:
    """Decided with a table of documents that never had a batch: without it in the file it could be anybody's table."""
    fetch(Home.resolve(), "spark")
    file = Path(place.root) / "pipelines" / "docs.yaml"
    documents = "  - {table: shop.docs, columns: {doc: {type: variant, from: []}}}\n"
    file.write_text(SEVERAL.format(topic=place.topic) + documents)
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "50")
    place.succeed("plan", "docs")
    killed = place.frazil("run", "docs", **{VARIABLE: "decide.committed=kill"})
    assert killed.returncode == Retryable.exit_code, killed.stderr
    file.write_text(SEVERAL.format(topic=place.topic))

    refused = place.frazil("run", "docs")
    assert refused.returncode == Terminal.exit_code
    assert "gives parts to shop.docs" in refused.stderr
    assert "add it to the file again" in refused.stderr

    file.write_text(SEVERAL.format(topic=place.topic) + documents)
    place.succeed("run", "docs")
    file.write_text(SEVERAL.format(topic=place.topic))
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "7", "--seed", "2")
    late = place.frazil("run", "docs")
    assert late.returncode == Retryable.exit_code, late.stderr
    assert "the edit may not have arrived here" in late.stderr

    file.write_text(SEVERAL.format(topic=place.topic) + documents)
    place.succeed("run", "docs")
    idle = place.succeed("run", "docs")

    assert "nothing new" in idle.stderr
    assert place.json("sql", "SELECT count(*) AS n FROM shop.docs") == [{"n": 57}]
    assert place.json("sql", "SELECT count(*) AS n FROM shop.ids") == [{"n": 57}]
    assert json.loads(place.frazil("verify", "docs", "--json").stdout)["is_clean"]
