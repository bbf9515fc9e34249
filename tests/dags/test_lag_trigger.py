"""When the trigger calls a run: what it does with what it sees, with Airflow's part played by a dictionary."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.batch.plan import Backlog, Threshold
from frazil.error_codes import INTERNAL
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil_airflow.project import lag_trigger
from frazil_airflow.project.lag_trigger import LagTrigger

pytestmark = [pytest.mark.dags, pytest.mark.timeout(30)]


SETTINGS = """
clusters: {local: {bootstrap_servers: "127.0.0.1:1", properties: {sasl.password: "${file:SECRET:password}"}}}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
"""


class Store(dict[str, Any]):
    """Airflow's store of an asset."""

    async def aget(self, key: str) -> Any:
        """A value as it was set; None if it was not."""
        return self.get(key)

    async def aset(self, key: str, value: Any) -> None:
        """Keep a value."""
        self[key] = value


class Over(Exception):
    """The script is at its end."""


def backlog(position: int, end: int) -> Backlog:
    return Backlog(end - position, None, 0, {"orders/0": position}, {"orders/0": end})


def calls(
    monkeypatch: pytest.MonkeyPatch, store: Store, looks: list[Any], at_work: list[int], every: float = 0.0
) -> list[int]:
    """Records that runs were called for, over these looks; `at_work` answers how many runs there are, at last none."""
    script: Iterator[Any] = iter(looks)

    def look(*_: object) -> Backlog | None:
        event = next(script, Over())
        if isinstance(event, Exception):
            raise event
        assert event is None or isinstance(event, Backlog)
        return event

    monkeypatch.setattr(LagTrigger, "_enough", look)
    monkeypatch.setattr(LagTrigger, "_count_current_runs", lambda _: at_work.pop(0) if at_work else 0)
    trigger = LagTrigger("orders", "ingest__orders", 50, None, every)
    trigger.asset_state_store = store  # type: ignore[assignment]
    found: list[int] = []

    async def run() -> None:
        nonlocal found
        async for event in trigger.run():
            found += [event.payload["records"]]

    with pytest.raises(Over):
        asyncio.run(run())
    return found


def test_run_is_triggered_once_while_first_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called once; again when the position has passed what the first one took, and enough waits anew."""
    waits, more, landed = backlog(0, 60), backlog(0, 500), backlog(60, 500)

    assert calls(monkeypatch, Store(), [waits, waits, waits, more, None, landed, landed], []) == [60, 440]


def test_restarted_triggerer_does_not_trigger_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is in Airflow's store: another process sees that it is open."""
    store = Store()

    assert calls(monkeypatch, store, [backlog(0, 60), backlog(0, 60)], []) == [60]
    assert calls(monkeypatch, store, [backlog(0, 90), backlog(0, 90)], []) == []


@pytest.mark.parametrize(
    "stored",
    [
        {"epoch": 0},
        {"epoch": 0, "ends": 3, "at": 1.0},
        {"epoch": 0, "ends": {"orders/0": 60}, "at": "2026-05-01T10:00:00"},
        {"epoch": 0, "ends": {"orders/0": [0, 60]}, "at": 9e9},
        "call",
    ],
)
def test_unreadable_stored_call_does_not_end_trigger(monkeypatch: pytest.MonkeyPatch, stored: object) -> None:
    """Another version wrote it: it counts as none, and the next call replaces it."""
    store = Store(call=stored)

    assert calls(monkeypatch, store, [backlog(0, 60), backlog(0, 60)], []) == [60]
    assert store["call"]["ends"] == {"orders/0": 60}


def test_triggerer_loads_trigger_without_pipeline_models() -> None:
    """It imports the module in its event loop, where all other triggers wait for it."""
    code = (
        "import sys, frazil_airflow.project.lag_trigger; print('frazil.pipeline.models.pipeline_file' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert shown.stdout.splitlines()[-1] == "False"


def test_no_run_is_triggered_beside_running_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduled run is at work: none is called until it has ended, and then only for what is left."""
    waits, second_waiting = backlog(0, 60), backlog(60, 120)

    assert calls(monkeypatch, Store(), [waits, waits, second_waiting, second_waiting], [1, 1, 0]) == [60]
    assert calls(monkeypatch, Store(), [waits, None], [0]) == []


def test_restarting_broker_does_not_end_trigger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of any class are waited out, and the settings are read again after each."""
    failures = [
        INTERNAL.retryable("no broker answers"),
        INTERNAL.terminal("refused"),
        INTERNAL.retryable("no broker answers"),
    ]
    read: list[str] = []

    def connections() -> dict[str, str]:
        read.append("connections")
        return {}

    def shared(topics: frozenset[tuple[str, str]]) -> object:
        assert topics == frozenset()
        read.append("project")
        return object()

    monkeypatch.setattr("frazil_airflow.project.secrets.connection_environment", connections)
    monkeypatch.setattr(lag_trigger, "_shared_project_files", shared)

    assert calls(monkeypatch, Store(), [*failures, backlog(0, 60), backlog(0, 60)], []) == [60]
    assert read == ["connections", "project"] * (1 + len(failures))


def test_rotated_secret_reaches_trigger(
    monkeypatch: pytest.MonkeyPatch, write_pipeline: Callable[..., Path], tmp_path: Path
) -> None:
    """The file that the settings take it from is one of the project's: once it changes, the next look has the new secret."""
    write_pipeline("orders")
    secret, settings = tmp_path / "secrets.properties", tmp_path / "settings.yaml"
    secret.write_text("password=hunter1\n")
    settings.write_text(SETTINGS.replace("SECRET", str(secret)))
    monkeypatch.setenv("FRAZIL_SETTINGS", str(settings))
    monkeypatch.setattr("frazil.monitor.watch.CHECK_SECONDS", 0)
    monkeypatch.setattr(LagTrigger, "_count_current_runs", lambda _: 0)
    lag_trigger._shared_project_files.cache_clear()

    class Watch:
        """Asks a broker that takes the new password only."""

        def __init__(self, project: Project, _: Pipeline) -> None:
            self.project = project

        def measure(self, _: Threshold) -> Backlog:
            if self.project.cluster("local").properties["sasl.password"] != "hunter2":
                secret.write_text("password=hunter2\n# rotated\n")
                raise INTERNAL.terminal("the broker did not accept the credentials")
            return backlog(0, 60)

    monkeypatch.setattr("frazil.report.lag.LagWatch", Watch)
    trigger = LagTrigger("orders", "ingest__orders", 50, None, 0.0)
    trigger.asset_state_store = Store()  # type: ignore[assignment]

    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    assert asyncio.run(asyncio.wait_for(first(), 20))["records"] == 60


def test_pause_after_failures_doubles_up_to_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause doubles up to five minutes, and is the usual one again after a look that worked."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(lag_trigger.asyncio, "sleep", pause)
    calls(monkeypatch, Store(), [*([INTERNAL.retryable("away")] * 7), None, None], [], every=10.0)

    assert pauses == [20, 40, 80, 160, 300, 300, 300, 10, 10]


def test_trigger_keeps_no_secret_in_airflow_database() -> None:
    """What is kept names the pipeline and the figures, and makes the same trigger again."""
    path, made_with = LagTrigger("orders", "ingest__orders", 50, 1024, 10.0).serialize()

    assert path == "frazil_airflow.project.lag_trigger.LagTrigger"
    assert made_with == {"pipeline": "orders", "dag_id": "ingest__orders", "records": 50, "size": 1024, "every": 10.0}
    assert LagTrigger(**made_with).serialize() == (path, made_with)


def test_triggers_of_one_process_share_one_catalog(
    monkeypatch: pytest.MonkeyPatch, write_pipeline: Callable[..., Path]
) -> None:
    """All triggers of a process look with one project, so with one catalog's connections; a changed file gives them a new one."""
    monkeypatch.setattr("frazil.monitor.watch.CHECK_SECONDS", 0)
    write_pipeline("orders")
    lag_trigger._shared_project_files.cache_clear()
    projects: list[Project] = []

    class Watch:
        """Looks at nothing."""

        def __init__(self, project: Project, pipeline: Pipeline) -> None:
            assert pipeline.name == "orders"
            projects.append(project)
            self.project = project

        def measure(self, _: Threshold) -> Backlog:
            return backlog(0, 1)

    monkeypatch.setattr("frazil.report.lag.LagWatch", Watch)
    triggers = [LagTrigger("orders", "ingest__orders", 50, None, 0.0) for _ in range(3)]

    for trigger in (*triggers, *triggers):
        assert trigger._enough(lag_trigger._shared_project_files(frozenset())) is None
    write_pipeline("pizzas")
    triggers[0]._enough(lag_trigger._shared_project_files(frozenset()))

    assert [project is projects[0] for project in projects] == [True, True, True, False]
