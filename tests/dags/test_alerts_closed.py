"""What was told is over one day, for everybody who was told, whatever became of the pipeline meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from frazil.alerts.failure import failure
from frazil.alerts.rules import Case
from frazil.monitor.condition import Condition
from frazil.pipeline.channels import Notice
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil_airflow.alerts import callbacks
from frazil_airflow.dags import monitor
from tests.dags.desk import VariableStore
from tests.receivers import Posts

pytestmark = pytest.mark.dags

NOW = datetime.now(UTC)
WELL = Condition("orders", "testers", NOW, n=3, lag=0)
REFUSED = replace(WELL, refusal="records are lost\n  next: frazil reset orders")
LATE = replace(WELL, lag=9, lag_seconds=7200.0, complete_through=NOW - timedelta(hours=2))
PROMISE = "alerts: {fresh_within: 20m}\n"


def send_notices(project: Project, condition: Condition, store: VariableStore, minutes: int = 0) -> list[str]:
    return monitor.send_notices(project, project.pipeline("orders"), condition, NOW + timedelta(minutes=minutes), store)


def notifications(hook: Posts) -> list[tuple[str, str]]:
    return [(body["key"], body["status"]) for body in hook.bodies]


@pytest.mark.parametrize("lasts", [False, True])
def test_missed_deadline_is_resolved_under_same_key(
    project: Callable[..., Project], variables: VariableStore, hook: Posts, lasts: bool
):
    """The monitor takes over what late runs told: not anew while it lasts, and under the same key when it is over."""
    alerted_project = project(PROMISE)

    callbacks.notify_of_late_run("orders")
    callbacks.notify_of_late_run("orders")  # the next run is late, too
    assert notifications(hook) == [("stale/orders", "firing")]

    if lasts:
        assert send_notices(alerted_project, LATE, variables) == []
        assert notifications(hook) == [("stale/orders", "firing")]
    assert send_notices(alerted_project, WELL, variables, minutes=2) == []
    assert send_notices(alerted_project, WELL, variables, minutes=4) == []
    assert notifications(hook) == [("stale/orders", "firing"), ("stale/orders", "recovered")]
    assert list(variables.texts) == ["frazil_alerts__orders"]


def test_channel_missed_by_late_run_gets_its_resolution(
    project: Callable[..., Project], variables: VariableStore, hook: Posts
):
    """It may have been told: a server that fails may have taken the notice."""
    alerted_project = project(PROMISE)
    hook.status = 503
    with pytest.raises(RuntimeError, match="stale/orders"):
        callbacks.notify_of_late_run("orders")
    hook.status, hook.got = 200, []

    assert send_notices(alerted_project, WELL, variables) == []

    assert notifications(hook) == [("stale/orders", "recovered")]


@pytest.mark.parametrize(
    ("becomes", "why"),
    [(None, "No pipeline has this name, and no broken file."), ("alerts: false\n", "Its file says alerts: false.")],
)
def test_unmonitored_pipeline_leaves_no_incident_open(
    project: Callable[..., Project], variables: VariableStore, hook: Posts, becomes: str | None, why: str
):
    """What was told is over, with the reason, and nothing of the pipeline is kept."""
    alerted_project, store = project(), variables
    assert send_notices(alerted_project, REFUSED, store) == []
    for dag_id in ("ingest__orders", "maintain__orders", "dead_letters__orders", "replay_dead_letters__orders"):
        store.texts[f"frazil_failure__{dag_id}"] = "{}"
    path = alerted_project.pipelines_folder / "orders.yaml"
    if becomes is None:
        path.unlink()
    else:
        path.write_text(path.read_text() + becomes)

    for _ in range(monitor.MISSED_CHECKS if becomes is None else 1):
        assert notifications(hook) == [("refused/orders", "firing")]
        monitor.look()

    assert notifications(hook) == [("refused/orders", "firing"), ("refused/orders", "recovered")]
    assert hook.bodies[-1]["cause"] == f"{why} It is no longer monitored. It was:\nrecords are lost"
    assert store.texts.keys() == {"frazil_api_complaint"}  # of this Airflow, which no pipeline has to do with


def closing(store: VariableStore, minutes: int = 0) -> list[str]:
    return monitor.close_unmonitored(Project.load(), NOW + timedelta(minutes=minutes), store)


def test_unavailable_channel_hears_of_removed_pipeline_later(project: Callable[..., Project], hook: Posts):
    """The page is kept until it was told."""
    alerted_project, store = project(), VariableStore()
    send_notices(alerted_project, REFUSED, store)
    (alerted_project.pipelines_folder / "orders.yaml").unlink()
    hook.status = 503

    assert [closing(store) for _ in range(monitor.MISSED_CHECKS - 1)] == [[], []]
    (problem,) = closing(store)
    hook.status = 200

    assert problem.startswith("channel web was not notified of refused/orders: ")
    assert closing(store, minutes=2) == []
    assert notifications(hook)[-1] == ("refused/orders", "recovered")
    assert store.texts == {}


def test_resolution_of_late_run_is_sent_once_while_channel_is_away(
    project: Callable[..., Project],
    variables: VariableStore,
    hook: Posts,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    """What late runs told is taken over once, also of a pipeline that is gone."""
    alerted_project, settings = project(PROMISE), tmp_path / "settings.yaml"
    channels = {name: {"type": "webhook", "connection": name} for name in ("web", "away")}
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"alerts": {"channels": channels}}))
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", json.dumps({"conn_type": "http", "host": "http://127.0.0.1:1"}))
    with pytest.raises(RuntimeError, match="channel away was not notified of stale/orders"):
        callbacks.notify_of_late_run("orders")
    (alerted_project.pipelines_folder / "orders.yaml").unlink()

    notices = [closing(variables, minutes) for minutes in range(0, 10, 2)]

    assert notifications(hook) == [("stale/orders", "firing"), ("stale/orders", "recovered")]
    assert notices[monitor.MISSED_CHECKS - 1][0].startswith("channel away was not notified of stale/orders")
    assert list(variables.texts) == ["frazil_alerts__orders"]


def test_folder_missing_for_moment_resolves_no_alerts(project: Callable[..., Project], hook: Posts):
    """Looks that find no such pipeline are counted from the last one that did; nothing is deleted before."""
    alerted_project, store = project(), VariableStore(texts={"frazil_failure__ingest__orders": "{}"})
    away = alerted_project.pipelines_folder.with_name("away")

    for minutes in range(0, 12, 2 * monitor.MISSED_CHECKS):
        assert send_notices(alerted_project, REFUSED, store, minutes) == []
        alerted_project.pipelines_folder.rename(away)
        alerted_project.pipelines_folder.mkdir()
        assert [closing(store, minutes + 2 * number) for number in range(1, monitor.MISSED_CHECKS)] == [[], []]
        alerted_project.pipelines_folder.rmdir()
        away.rename(alerted_project.pipelines_folder)

    assert notifications(hook) == [("refused/orders", "firing")]
    assert store.texts.keys() == {"frazil_alerts__orders", "frazil_failure__ingest__orders"}


def test_late_run_during_monitor_check_is_kept(
    project: Callable[..., Project], variables: VariableStore, hook: Posts, monkeypatch: pytest.MonkeyPatch
):
    """What it wrote since the monitor read its page is taken over by the next look."""
    alerted_project = project(PROMISE)

    def judge(case: Case) -> Mapping[str, Notice | None]:
        callbacks.notify_of_late_run("orders")
        return judged(case)

    from frazil.alerts.rules import judge as judged

    with monkeypatch.context() as patch:
        patch.setattr("frazil.alerts.rules.judge", judge)
        assert send_notices(alerted_project, WELL, variables) == []
    assert notifications(hook) == [("stale/orders", "firing")]

    assert send_notices(alerted_project, WELL, variables, minutes=2) == []
    assert notifications(hook) == [("stale/orders", "firing"), ("stale/orders", "recovered")]
    assert list(variables.texts) == ["frazil_alerts__orders"]


def test_file_under_edit_resolves_no_alerts_of_its_pipeline(project: Callable[..., Project], hook: Posts):
    """While a file can't be read it may be that of any pipeline: none counts as removed."""
    alerted_project, store = project(), VariableStore()
    send_notices(alerted_project, REFUSED, store)
    path = alerted_project.pipelines_folder / "orders.yaml"
    path.rename(path.with_name("shop.yaml")).write_text("name: [")

    assert monitor.close_unmonitored(Project.load(), NOW, store) == []

    assert notifications(hook) == [("refused/orders", "firing")]
    assert "frazil_alerts__orders" in store.texts


def test_silenced_kind_of_alert_is_resolved(project: Callable[..., Project], hook: Posts):
    """Who was told of it is told that it is over for them, though it lasts; and nothing more."""
    store = VariableStore()
    send_notices(project(), REFUSED, store)

    silent = project("alerts: {silent: [refused]}\n")
    assert [send_notices(silent, REFUSED, store, minutes) for minutes in (2, 4)] == [[], []]
    assert send_notices(silent, WELL, store, minutes=6) == []

    assert notifications(hook) == [("refused/orders", "firing"), ("refused/orders", "recovered")]
    assert hook.bodies[-1]["cause"].startswith("This channel no longer gets this alert: ")


@pytest.mark.parametrize(
    ("kind", "dag"), [("failed_report", "dead_letters__orders"), ("failed_replay", "replay_dead_letters__orders")]
)
def test_failed_report_is_notified(
    project: Callable[..., Project], hook: Posts, monkeypatch: pytest.MonkeyPatch, kind: str, dag: str
):
    """What a failed report, or form, left is told with a link to its DAG, and over when it is forgotten."""
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org")
    place = f"frazil_failure__{dag}"
    failure_left = failure(dag, "r1", NOW, "no space", final=True, chore=kind)
    store, alerted_project = VariableStore(texts={place: failure_left.to_json()}), project()

    assert send_notices(alerted_project, WELL, store) == []
    store.delete(place)
    assert send_notices(alerted_project, WELL, store, minutes=2) == []

    assert notifications(hook) == [(f"{kind}/orders", "firing"), (f"{kind}/orders", "recovered")]
    assert (hook.bodies[0]["cause"], hook.bodies[0]["severity"]) == ("Run r1\nno space", "warning")
    assert hook.bodies[0]["link"] == f"https://airflow.example.org/dags/{dag}"


def test_pipeline_with_failing_check_does_not_silence_others(
    project: Callable[..., Project],
    write_pipeline: Callable[..., Path],
    hook: Posts,
    variables: VariableStore,
    monkeypatch: pytest.MonkeyPatch,
):
    """The others are told, then the look fails by the name of the one."""
    project()
    write_pipeline("broken")

    def read(_project: Project, pipeline: Pipeline, **_: object) -> Condition:
        return replace(REFUSED, pipeline=pipeline.name)

    def judge(case: Case) -> Mapping[str, Notice | None]:
        if case.condition.pipeline == "broken":
            raise KeyError("a fault")
        return judged(case)

    from frazil.alerts.rules import judge as judged

    monkeypatch.setattr("frazil.monitor.reading.read", read)
    monkeypatch.setattr("frazil.alerts.rules.judge", judge)

    with pytest.raises(RuntimeError, match=r"^broken: no notice could be sent: KeyError: 'a fault'$"):
        monitor.look()

    assert notifications(hook) == [("refused/orders", "firing")]
    assert json.loads(variables.texts["frazil_alerts__orders"])["entries"].keys() == {"refused"}
