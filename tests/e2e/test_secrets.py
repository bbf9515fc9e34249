"""Secrets of the settings, in an Airflow that has run a pipeline by Spark, reported and alerted: they are nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.runtime.airflow_api import DagRun
from tests.e2e.embedded import MARKS, PIZZAS, WEB_TOKEN, Embedded

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SECRETS = [*MARKS.values(), WEB_TOKEN]


def test_secret_is_found_nowhere_else(embedded: Embedded, landed: DagRun) -> None:
    """Neither in the home (logs, Airflow's metadata, tables, job logs) nor in what Airflow's API tells of a run and its tasks."""
    root = embedded.project.home.root
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    texts = {
        part: str(embedded.api._request("GET", f"/dags/{PIZZAS}/dagRuns/{landed.run_id}/taskInstances{part}"))
        for part in ("", "/ingest", "/ingest/xcomEntries", "/plan/xcomEntries", "/plan/xcomEntries/return_value")
    }

    assert any(path.name == "airflow.db" for path in files)
    assert any(b"spark-submit" in content or b"SparkContext" in content for content in files.values())
    assert [
        f"{secret} in {path}" for path, content in files.items() for secret in SECRETS if secret.encode() in content
    ] == []
    assert [f"{secret} in {place}" for place, text in texts.items() for secret in SECRETS if secret in text] == []
    assert [line for line in arguments() for secret in SECRETS if secret in line] == []


def arguments() -> list[str]:
    """Arguments of all processes of the machine."""
    problems = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            problems.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # it has ended
    return problems
