"""What differs between versions of Airflow stands in one module. `make test-full` runs a DAG under each of them (tests/integration/cli)."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk.definitions.deadline import DeadlineReference
from airflow.timetables.interval import CronDataIntervalTimetable

from frazil_airflow import compat
from tests.dags.conftest import Parse

ROOT = Path(compat.__file__).parent


def test_only_compat_names_what_moves_between_versions() -> None:
    """A name that another module takes from Airflow directly is missing on the oldest version, and all DAGs with it."""
    calls = [
        (path.name, alias.name)
        for path in ROOT.rglob("*.py")
        if path.name != "compat.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("airflow.")
        if not str(node.module).startswith("airflow.providers.")
        for alias in node.names
    ]

    assert ("factory.py", "DAG") in calls
    assert [place for place in calls if place[1] in compat.__all__] == []


PRIVATE = {"_build_mime_message", "_get_hook", "_hook", "_log", "_process_spark_submit_log"}
"""Of Airflow's providers: a text beside the HTML of a mail, the hook that runs spark-submit and its lines, the log of a hook."""


def test_private_names_of_airflow_are_few() -> None:
    """Each of them may go with a release: nothing public does the same, and a test holds each against the provider."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    methods = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    tasks = {
        target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
        for method in nodes
        if isinstance(method, ast.ClassDef) or (isinstance(method, ast.FunctionDef) and method.name == "__init__")
        for node in method.body
        for target in getattr(node, "targets", [getattr(node, "target", None)])
    }
    used = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr)
        if isinstance(node.value, ast.Call) or node.attr not in methods | tasks
    }

    assert used == PRIVATE


def test_pipeline_runs_by_its_schedule_alone_where_assets_have_no_state_store(
    parse: Parse,
    write_pipeline: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before Airflow 3.3 a watcher can't note its last call: it would call a run for the same records again and again."""
    monkeypatch.setattr("frazil_airflow.dags.factory.HAS_ASSET_STATE", False)
    write_pipeline("orders", more="trigger: {records: 500}\n")
    # Airflow configures logging anew where an earlier test began something of it: the root's handler and loggers may be off.
    logger = logging.getLogger("frazil_airflow.dags.factory")
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [caplog.handler])

    bag = parse()

    assert bag.import_errors == {}
    assert type(bag.dags["ingest__orders"].timetable).__name__ == CronDataIntervalTimetable.__name__
    (line,) = [record.getMessage() for record in caplog.records if "`trigger` is off" in record.getMessage()]
    assert line.startswith("pipeline orders: ")


@pytest.mark.parametrize(("version", "name"), [((3, 1), None), ((3, 2), None), ((3, 3), "fresh_within")])
def test_deadline_has_a_name_where_airflow_takes_one(
    version: tuple[int, int], name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "AIRFLOW", version)
    callback = compat.AsyncCallback("frazil_airflow.alerts.callbacks.missed_deadline")

    deadline = compat.named_deadline(
        "fresh_within", reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=timedelta(minutes=5), callback=callback
    )

    assert (deadline.name, deadline.interval) == (name, timedelta(minutes=5))
