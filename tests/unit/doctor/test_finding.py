"""What checks make of what they see."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from frazil.doctor.examine import executor_findings, failure_finding
from frazil.doctor.finding import ServerTime, clock_finding, record_finding
from frazil.doctor.machine import disk_finding, jar_findings, packages_finding, python_finding
from frazil.doctor.services import access_finding, position_finding, tables_finding
from frazil.error_codes import INTERNAL
from frazil.kafka.admin.topics import TopicAccess
from frazil.monitor.condition import Condition, Retention
from frazil.pipeline.files.files import References
from frazil.pipeline.files.load import load_pipeline
from frazil.runtime.home import Home

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
PIZZAS = load_pipeline(Path(__file__).resolve().parents[3] / "include/pipelines/pizzas.yaml", References({}, {}))
FINE = Condition("pizzas", "shop", NOW, n=7, lag=0, held_back=0)

DRIVER = {"pyspark": "4.1.3", "pyarrow": "22.0.0"}
GOOD: dict[str, Any] = {
    "executor": "node-1:/work/0", "time": 50.0, "python": "3.11.2", "versions": dict(DRIVER) | {"frazil": None},
    "lacks": None, "sources": "abc", "problems": [],
}  # fmt: skip


@pytest.mark.parametrize(
    ("installed", "state", "message"),
    [
        ({"pyarrow": "22.0.0"}, "ok", "1 packages"),
        ({"pyarrow": "21.0.0"}, "failed", "pyarrow is 21.0.0, not >=22"),
        ({}, "failed", "pyarrow is missing (>=22)"),
        ({"pyarrow": "22.0.0", "pandas": "3.0.0"}, "ok", "1 packages"),  # somebody else's pandas makes no Spark of it
        ({"pyarrow": "22.0.0", "pyspark": "4.1.2", "pandas": "3.0.0"}, "failed", "pyspark is 4.1.2, not ==4.1.3"),
        ({"pyarrow": "22.0.0", "pyspark": "4.1.3"}, "failed", "pandas is missing (>=2.2)"),
    ],
)
def test_packages_of_other_versions_are_reported(installed: dict[str, str], state: str, message: str) -> None:
    """Each package is compared with its pin; those of an extra only where the extra is there."""
    requirements = [
        "pyarrow>=22",
        'pyspark==4.1.3; extra == "spark"',
        'pandas>=2.2; extra == "spark"',
        'ruff; extra == "dev"',
    ]

    finding = packages_finding(requirements, installed.get)

    assert (finding.state, finding.observed.startswith(message)) == (state, True), finding


def test_old_python_is_reported() -> None:
    """The version is compared with `requires-python`, and the way out is named."""
    assert python_finding("3.12.1", ">=3.11,<3.14").state == "ok"
    assert python_finding("3.10.9", ">=3.11,<3.14").state == "failed"


@pytest.mark.parametrize(("free", "state"), [(2**40, "ok"), (2**31, "warning"), (2**28, "failed")])
def test_full_disk_is_reported(free: int, state: str) -> None:
    """Little room is a warning, too little a failure."""
    assert disk_finding(Path("/state"), free).state == state


def test_replaced_jar_is_reported(tmp_path: Path) -> None:
    """Jars are compared byte by byte; those that nobody fetched yet are no failure, a run fetches them."""
    home = Home(tmp_path, tmp_path, tmp_path / "jars")
    assert [finding.state for finding in jar_findings(home, needs_spark=True)] == ["warning"]
    assert list(jar_findings(home, needs_spark=False)) == []
    (home.jars / "spark").mkdir(parents=True)

    (finding,) = jar_findings(home, needs_spark=True)

    assert finding.state == "failed"
    assert "expected sha256" in finding.observed


@pytest.mark.parametrize(
    ("date", "ahead"), [(100, 0), (99, 0), (102, 0), (103, 1), (98, -1), (400, 298), (0, -99)], ids=str
)
def test_slow_answer_is_not_a_wrong_clock(date: int, ahead: float) -> None:
    """A date of whole seconds, stamped at some time between question and answer, proves no more than it does."""
    assert ServerTime(date, asked_at=100.0, answered_at=102.0).ahead == ahead


def test_skewed_clock_is_reported() -> None:
    """Seconds are tolerated, minutes are told, and a quarter of an hour is what S3 refuses."""
    assert [clock_finding("s3", ahead).state for ahead in (3, -60, 60, 1_000)] == ["ok", "warning", "warning", "failed"]
    assert "60 s behind" in clock_finding("s3", -60).observed
    assert [record_finding("local", 100 + ahead, 100).state for ahead in (-9_999, 60)] == ["ok", "warning"]


def test_missing_permission_is_reported() -> None:
    """What the brokers say that may be done is compared with what a pipeline does; brokers that do not say are believed."""
    may, may_not = TopicAccess(3, frozenset({"READ", "DESCRIBE"}), None), TopicAccess(1, frozenset({"DESCRIBE"}), None)

    assert access_finding("topics", {"a": may, "b": replace(may, operations=None)}).state == "ok"
    finding = access_finding("topics", {"a": may, "b": may_not})
    assert (finding.state, finding.observed) == ("failed", "b: no READ")


def test_lost_position_is_reported() -> None:
    """The same rule as for the state word judges, and its next step is kept."""
    retention = Retention("pizzas", 0, headroom=5, seconds_left=60, cut_to_seconds=3_600)
    refused = replace(FINE, refusal="topic pizzas was recreated\n  next: frazil reset pizzas --to earliest")

    assert position_finding(FINE, PIZZAS).state == "ok"
    assert position_finding(replace(FINE, retention=(retention,)), PIZZAS).state == "warning"
    finding = position_finding(refused, PIZZAS)
    assert (finding.state, finding.next_step) == ("failed", "frazil reset pizzas --to earliest")


def test_unhealthy_table_is_a_warning_with_its_command() -> None:
    """Below the health that the state word knows there is a warning with the command."""
    assert tables_finding("tables", "pizzas", {}).state == "ok"
    assert tables_finding("tables", "pizzas", {"rpc.pizzas": 90}).state == "ok"
    assert "frazil maintain pizzas" in (tables_finding("tables", "pizzas", {"rpc.pizzas": 9}).next_step or "")


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ({}, []),
        ({"lacks": "ModuleNotFoundError: No module named 'pyarrow'"}, ["can't import what tasks need"]),
        ({"versions": {"pyarrow": "21.0.0"}}, ["pyarrow is 21.0.0"]),
        ({"sources": "def"}, ["its Frazil is another one"]),
        (
            {"problems": [["cluster local", "no broker answered", "open the port"]]},
            ["cluster local: no broker answered"],
        ),
        ({"time": 400.0}, ["300 s ahead"]),
    ],
)
def test_executor_differences_are_reported_once(report: dict[str, Any], expected: list[str]) -> None:
    """Each executor is compared with the driver once, however many tasks it answered, and named."""
    answer = {"began": 40.0, "ended": 100.0, "told": [GOOD, GOOD, GOOD | report | {"executor": "node-2:/work/1"}]}

    findings = [finding for finding in executor_findings("executors", answer, DRIVER, "abc") if finding.state != "ok"]

    assert [text for finding, text in zip(findings, expected, strict=True) if text not in finding.observed] == []
    assert all("node-2" in finding.observed + finding.check for finding in findings)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ('Cannot run program "/opt/venv/bin/python": error=2', "no Python at /opt/venv/bin/python"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "lacks the module pyarrow"),
        ("Initial job has not accepted any resources; check", "no executor started"),
        ("something else", "something else"),
    ],
)
def test_failed_probe_is_explained_from_its_log(log: str, message: str) -> None:
    """What Spark says where no task could tell anything is put into words, else quoted."""
    assert message in failure_finding("executors", INTERNAL.retryable(log)).observed
