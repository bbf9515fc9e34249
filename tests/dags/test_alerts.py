"""The DAG `monitor`: what it tells, and when."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowException

from frazil.alerts.failure import failure
from frazil.alerts.notification_log import Page, to_json
from frazil.monitor.condition import Condition, Runs
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil_airflow.alerts import callbacks
from frazil_airflow.dags import monitor
from tests.dags.desk import VariableStore
from tests.receivers import Posts

pytestmark = pytest.mark.dags

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
REFUSED = Condition("orders", "testers", NOW, n=3, lag=0, refusal="records are lost\n  next: frazil reset orders")
WELL = Condition("orders", "testers", NOW, n=3, lag=0)


def send_notices(project: Project, condition: Condition, store: VariableStore, minutes: int = 0) -> list[str]:
    return monitor.send_notices(project, project.pipeline("orders"), condition, NOW + timedelta(minutes=minutes), store)


def test_channel_makes_unpaused_monitor_dag_and_failure_notes(
    project: Callable[..., Project], parse: Callable[[], DagBag]
):
    """With a channel there is a DAG that is not paused when it appears, and every task notes why it failed."""
    project()

    bag = parse()

    assert bag.import_errors == {}
    assert bag.dags["monitor"].is_paused_upon_creation is False
    assert bag.dags["monitor"].max_active_runs == 1
    for name in ("ingest__orders", "maintain__orders", "dead_letters__orders", "replay_dead_letters__orders"):
        assert bag.dags[name].has_on_failure_callback
        assert all(task.has_on_failure_callback for task in bag.dags[name].tasks), name
    for name in ("maintain__orders", "dead_letters__orders", "replay_dead_letters__orders"):
        assert bag.dags[name].has_on_success_callback, name
    assert bag.dags["ingest__orders"].deadline is None


def test_project_without_channels_has_no_alert_dag_or_callback(
    write_pipeline: Callable[..., Path], parse: Callable[[], DagBag]
):
    """No DAG, no callback."""
    write_pipeline("orders")

    bag = parse()

    assert "monitor" not in bag.dags
    assert not bag.dags["ingest__orders"].has_on_failure_callback


def test_freshness_promise_is_watched_by_airflow_deadline_too(
    project: Callable[..., Project], parse: Callable[[], DagBag]
):
    """Where the file says one, Airflow's own deadline of each run watches it as well."""
    project("alerts: {fresh_within: 20m}\n")

    (deadline,) = parse().dags["ingest__orders"].deadline

    assert deadline.interval == timedelta(minutes=20)
    assert (deadline.callback.path, deadline.callback.kwargs) == (
        "frazil_airflow.alerts.callbacks.missed_deadline",
        {"pipeline": "orders"},
    )


def test_attempt_is_logged_before_notification_is_sent(project: Callable[..., Project], hook: Posts):
    """The log is stored, then the notice is sent, then its result is stored: a kill repeats it once, and not at every check."""
    store = VariableStore(hook)

    assert send_notices(project(), REFUSED, store) == []

    assert store.sent_before == [0, 1]
    assert hook.bodies[0]["key"] == "refused/orders"
    assert hook.bodies[0]["next_step"] == "frazil reset orders"
    assert "tries" in store.texts["frazil_alerts__orders"]


def test_unwritable_notification_log_sends_no_notifications(project: Callable[..., Project], hook: Posts):
    """Nothing is sent that would be sent again at every look."""

    class Broken(VariableStore):
        def set(self, *_: str) -> None:
            raise AirflowException("no database")

    with pytest.raises(AirflowException, match="no database"):
        send_notices(project(), REFUSED, Broken())

    assert hook.got == []


def test_server_that_was_away_is_notified_by_next_check(project: Callable[..., Project], hook: Posts):
    """The look says so, the next one tells it, and the one after does not."""
    store, alerted_project = VariableStore(), project()
    hook.status = 503

    (problem,) = send_notices(alerted_project, REFUSED, store)
    assert problem.startswith("channel web was not notified of refused/orders: ")
    hook.status, hook.got = 200, []
    assert send_notices(alerted_project, REFUSED, store, minutes=2) == []
    assert send_notices(alerted_project, REFUSED, store, minutes=4) == []
    assert send_notices(alerted_project, WELL, store, minutes=6) == []

    assert [body["status"] for body in hook.bodies] == ["firing", "recovered"]


def test_corrupt_notification_log_does_not_stop_monitor(project: Callable[..., Project], hook: Posts):
    """It is begun anew: what holds is told once more."""
    store = VariableStore(texts={"frazil_alerts__orders": "{edited", "frazil_failure__ingest__orders": "{edited"})

    assert send_notices(project(), REFUSED, store) == []
    assert len(hook.got) == 1


@pytest.mark.parametrize(("ago", "messages"), [(None, 1), (timedelta(minutes=3), 0), (timedelta(hours=1), 1)])
def test_late_run_is_notified_once(
    project: Callable[..., Project], variables: VariableStore, hook: Posts, ago: timedelta | None, messages: int
):
    """The deadline speaks where the monitor did not look lately; where it did, it knows better."""
    project()
    if ago is not None:
        page = to_json(Page(datetime.now(UTC) - ago))
        variables.texts["frazil_alerts__orders"] = page

    asyncio.run(callbacks.missed_deadline("orders"))

    assert [body["key"] for body in hook.bodies] == ["stale/orders"] * messages


def test_late_run_with_lost_notification_fails_its_callback(
    project: Callable[..., Project], variables: VariableStore, hook: Posts
):
    """The callback fails, which Airflow shows."""
    project()
    hook.status = 500

    with pytest.raises(RuntimeError, match="channel web was not notified of stale/orders: "):
        callbacks.notify_of_late_run("orders")


def test_growing_lag_is_seen_where_pipeline_runs_oftener_than_monitor(project: Callable[..., Project], hook: Posts):
    """Then two looks count as an interval, so that there is one in each."""
    alerted_project, store = project(), VariableStore()
    path = alerted_project.pipelines_folder / "orders.yaml"
    path.write_text(path.read_text().replace('"5m"', '"1m"'))
    alerted_project = Project.load()
    for look in range(14):
        instant = NOW + timedelta(minutes=2 * look)
        behind = replace(WELL, read_at=instant, lag=100 + look, lag_seconds=600.0, complete_through=instant)
        assert send_notices(alerted_project, behind, store, minutes=2 * look) == []

    assert [body["key"] for body in hook.bodies] == ["lag_growing/orders"]


def test_pipeline_with_broken_file_is_notified_once(project: Callable[..., Project], hook: Posts):
    """It has no DAG any more, so no run fails: people are told once, and when the file is mended."""
    store, path = VariableStore(), project().pipelines_folder / "orders.yaml"
    sound = path.read_text()
    path.write_text(f"{sound}colour: red\n")

    assert monitor.notify_of_broken_files(Project.load(), NOW, store) == []
    assert monitor.notify_of_broken_files(Project.load(), NOW + timedelta(minutes=2), store) == []
    path.write_text(sound)
    assert monitor.notify_of_broken_files(Project.load(), NOW + timedelta(minutes=4), store) == []
    assert send_notices(Project.load(), WELL, store, minutes=4) == []

    assert [(body["key"], body["status"]) for body in hook.bodies] == [
        ("refused/orders", "firing"),
        ("refused/orders", "recovered"),
    ]
    assert "colour" in hook.bodies[0]["cause"]
    assert hook.bodies[0]["owner"] == "testers"
    assert hook.bodies[0]["next_step"].startswith("mend the file")


def test_names_unknown_to_settings_are_notified(project: Callable[..., Project], hook: Posts):
    """A file that can be read, and that no DAG is made of, is told likewise."""
    path = project().pipelines_folder / "orders.yaml"
    path.write_text(path.read_text().replace("source: {", "source: {cluster: nowhere, "))

    assert monitor.notify_of_broken_files(Project.load(), NOW, VariableStore()) == []

    (body,) = hook.bodies
    assert (body["owner"], body["severity"]) == ("testers", "critical")
    assert "nowhere" in body["cause"]


@pytest.mark.parametrize("becomes", ["schedule: false", "engine: nowhere"])
def test_failed_maintenance_is_resolved_once_its_dag_is_gone(
    project: Callable[..., Project], hook: Posts, becomes: str
):
    """No later run could end it, so the files do: no schedule, or no engine of that name in the settings."""
    failed = failure("maintain__orders", "r1", NOW, "no space", final=False, chore="failed_maintenance")
    store = VariableStore(texts={"frazil_failure__maintain__orders": failed.to_json()})

    assert send_notices(project(), WELL, store) == []
    assert send_notices(project(f"maintenance: {{{becomes}}}\n"), WELL, store, minutes=2) == []

    assert [(body["key"], body["status"]) for body in hook.bodies] == [
        ("failed_maintenance/orders", "firing"),
        ("failed_maintenance/orders", "recovered"),
    ]


def test_one_unreadable_pipeline_does_not_silence_others(
    project: Callable[..., Project],
    write_pipeline: Callable[..., Path],
    hook: Posts,
    variables: VariableStore,
    monkeypatch: pytest.MonkeyPatch,
):
    """The look tells of all others, then fails by the name of the one."""
    project()
    write_pipeline("broken")

    def read(_project: Project, pipeline: Pipeline, **_: object) -> Condition:
        if pipeline.name == "broken":
            raise KeyError("a fault")
        return REFUSED

    monkeypatch.setattr("frazil.monitor.reading.read", read)

    with pytest.raises(RuntimeError, match="broken could not be checked: KeyError: 'a fault'"):
        monitor.look()

    assert [body["key"] for body in hook.bodies] == ["refused/orders"]


def test_hanging_catalog_does_not_delay_notifications_of_other_pipelines(
    project: Callable[..., Project],
    write_pipeline: Callable[..., Path],
    hook: Posts,
    variables: VariableStore,
    monkeypatch: pytest.MonkeyPatch,
):
    """The others are told at once, and the look ends by the name of the one, without waiting for it."""
    project()
    write_pipeline("abyss")
    answers = threading.Event()

    def read(_project: Project, pipeline: Pipeline, **_: object) -> Condition:
        if pipeline.name == "abyss":
            assert answers.wait(60)
        return REFUSED

    monkeypatch.setattr("frazil.monitor.reading.read", read)
    monkeypatch.setattr(monitor, "READ_TIMEOUT", timedelta(seconds=1))
    try:
        with pytest.raises(RuntimeError, match=r"^abyss could not be checked: no answer within 0:00:01$"):
            monitor.look()
    finally:
        answers.set()

    assert [body["key"] for body in hook.bodies] == ["refused/orders"]
    assert "frazil_alerts__abyss" not in variables.texts


CAPTURE = "{capture: jdbc, name: orders, owner: testers, topic: t, database: shop, table: orders, mode: bulk, MORE}"


def capture_project(project: Callable[..., Project], tmp_path: Path, more: str = "") -> Project:
    """A project with a capture that is named as its pipeline."""
    project()
    settings = tmp_path / "settings.yaml"
    database = {"shop": {"url": "jdbc:sqlite:/tmp/none.db", "driver": "org.sqlite.JDBC"}}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"databases": database}))
    (tmp_path / "captures").mkdir(exist_ok=True)
    (tmp_path / "captures" / "orders.yaml").write_text(CAPTURE.replace("MORE", more))
    return Project.load()


def test_capture_is_notified_beside_pipeline_of_its_name(
    project: Callable[..., Project], tmp_path: Path, hook: Posts
) -> None:
    """A failed run, under the capture's own name, with the link to its DAG; and once more when it is over."""
    alerted_project, store = capture_project(project, tmp_path), VariableStore()
    noted = failure("capture__orders", "r1", NOW, "no driver\n  next: bring its jar", final=True)
    store.texts["frazil_failure__capture__orders"] = noted.to_json()
    condition = Condition(
        "capture.orders", "testers", NOW, n=3, unit="rows", runs=Runs(last_state="failed", last_run="r1")
    )
    capture = alerted_project.capture("orders")

    assert monitor.send_notices(alerted_project, capture, condition, NOW, store) == []
    assert send_notices(alerted_project, WELL, store) == []
    ended = replace(condition, runs=Runs(last_state="success", last_ended_at=NOW + timedelta(minutes=1), failures=0))
    assert monitor.send_notices(alerted_project, capture, ended, NOW + timedelta(minutes=2), store) == []

    assert [(body["key"], body["status"]) for body in hook.bodies] == [
        ("failed_run/capture.orders", "firing"),
        ("failed_run/capture.orders", "recovered"),
    ]
    assert (hook.bodies[0]["title"], hook.bodies[0]["next_step"]) == ("capture orders: a run failed", "bring its jar")
    assert {name for name in store.texts if "alerts" in name} == {
        "frazil_alerts__capture.orders",
        "frazil_alerts__orders",
    }


def test_late_capture_is_notified_where_no_monitor_looked(
    project: Callable[..., Project], tmp_path: Path, hook: Posts, variables: VariableStore
) -> None:
    capture_project(project, tmp_path)

    callbacks.notify_of_late_run("capture.orders")

    assert [(body["key"], body["title"]) for body in hook.bodies] == [
        ("stale/capture.orders", "capture orders: a run is late")
    ]
    assert "A run of capture__orders has not ended" in hook.bodies[0]["cause"]


def test_broken_and_removed_captures_are_notified(project: Callable[..., Project], tmp_path: Path, hook: Posts) -> None:
    """A file that can't be used stops a capture without a failed run; one that is gone ends what was told of it."""
    store, broken = VariableStore(), capture_project(project, tmp_path, "modus: x")

    assert monitor.notify_of_broken_files(broken, NOW, store) == []
    (tmp_path / "captures" / "orders.yaml").unlink()
    for look in range(monitor.MISSED_CHECKS):
        assert monitor.close_unmonitored(Project.load(), NOW + timedelta(minutes=look), store) == []

    assert [(body["key"], body["status"]) for body in hook.bodies] == [
        ("refused/capture.orders", "firing"),
        ("refused/capture.orders", "recovered"),
    ]
    assert hook.bodies[0]["title"] == "capture orders: its file is broken, it does not run"
    assert "modus: unknown key" in hook.bodies[0]["cause"]
