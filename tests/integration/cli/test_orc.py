"""A table of ORC files, one of them on a branch, as a user sees it: Spark writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Retryable
from frazil.failpoints import VARIABLE
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

FILE = """
name: payments
source: {{topics: [{topic}]}}
destinations:
  - table: shop.payments
    columns: &columns
      id: {{type: string, required: true}}
      type: string
      created_at: timestamptz
      document: string
      payer: string
      amount: "decimal(12,2)"
    partition_by: [type, day(created_at)]
    sort_by: [created_at]
    properties: {{write.format.default: orc}}
  - table: shop.audited
    branch: night
    columns: *columns
    properties: {{write.format.default: orc}}
"""


@pytest.mark.full
def test_killed_job_neither_loses_nor_doubles_orc_rows(place: Place) -> None:
    """Killed between decision and tables, the next run finishes them: every value is there, once, in ORC files, and on the branch."""
    fetch(Home.resolve(), "spark")
    (Path(place.root) / "pipelines" / "payments.yaml").write_text(FILE.format(topic=place.topic))
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "200", "--broken-per-thousand", "100")

    place.succeed("plan", "payments")

    killed = place.frazil("run", "payments", **{VARIABLE: "decide.committed=kill"})
    assert killed.returncode == Retryable.exit_code, killed.stderr
    finished = place.succeed("run", "payments")
    assert "needs Spark" in finished.stderr
    idle = place.succeed("run", "payments")

    assert "nothing new" in idle.stderr
    batches = place.json("history", "payments", "--files")
    assert {Path(file["path"]).suffix for file in batches} == {".orc"}
    assert {file["table"] for file in batches} == {"shop.payments", "shop.audited"}
    ended = place.frazil("verify", "payments", "--json")
    assert ended.stdout, ended.stderr
    checked = json.loads(ended.stdout)
    assert checked["differences"] == []
    assert checked["is_clean"]
    assert checked["values_compared"]
    assert place.json("sql", "SELECT count(*) AS n FROM shop.audited") == [{"n": 0}]
