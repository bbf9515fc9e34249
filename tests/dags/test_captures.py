"""DAGs of captures: which there are, what they run as, and what is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException

from frazil.pipeline.syntax.interval import parse_interval
from frazil_airflow.dags.captures import CaptureFilesOperator, CaptureRowsOperator
from frazil_airflow.dags.dag_defaults import timetable

pytestmark = pytest.mark.dags

Parse = Callable[[], DagBag]

LOGS = {"capture": "file", "name": "logs", "topic": "logs", "paths": ["/var/log/app.log*"]}
ROWS = {"capture": "jdbc", "name": "rows", "topic": "rows", "database": "shop", "table": "orders", "mode": "bulk"}
DATABASE = {"url": "jdbc:sqlite:/tmp/none.db", "driver": "org.sqlite.JDBC"}


@pytest.fixture
def captures(pipelines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write capture files, beside settings that know one database."""

    def write(*files: dict[str, Any]) -> None:
        settings = {
            "clusters": {"local": {"bootstrap_servers": "127.0.0.1:1"}},
            "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}},
            "engines": {"spark": {"pool": "large", "connection": "cluster"}},
            "databases": {"shop": DATABASE},
            "captures": {"folders": ["/var/log"]},
        }
        (tmp_path / "settings.yaml").write_text(json.dumps(settings))
        monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))
        (tmp_path / "captures").mkdir()
        for number, file in enumerate(files):
            (tmp_path / "captures" / f"{number}.yaml").write_text(json.dumps(file))

    return write


def test_file_captures_run_in_process_and_row_captures_on_spark(parse: Parse, captures: Callable[..., None]):
    """One task each, one at a time: files in its own process, rows as a Spark job in the engine's pool."""
    captures({**LOGS, "interval": "2m", "owner": "web"}, ROWS)
    bag = parse()
    assert bag.import_errors == {}
    files, rows = (bag.dags[f"capture__{name}"].get_task("capture") for name in ("logs", "rows"))
    assert (type(files), type(rows)) == (CaptureFilesOperator, CaptureRowsOperator)
    assert (files.owner, files.max_active_tis_per_dag, rows.pool, rows._conn_id) == ("web", 1, "large", "cluster")
    dag = bag.dags["capture__logs"]
    assert (dag.timetable, dag.max_active_runs, dag.catchup) == (timetable(parse_interval("2m")), 1, False)


def test_broken_capture_does_not_hide_others(parse: Parse, captures: Callable[..., None]):
    """Its complaint names file and key, or what the settings lack; the other DAGs are there."""
    captures(LOGS, {**LOGS, "name": "odd", "path": "/x"}, {**ROWS, "database": "shopp"}, {"capture": "ftp"})
    bag = parse()
    assert [name for name in bag.dags if name.startswith("capture__")] == ["capture__logs"]
    (error,) = bag.import_errors.values()
    assert "path: unknown key, did you mean 'paths'" in error
    assert "capture rows: database: the settings have no 'shopp' under databases, did you mean 'shop'" in error
    assert "capture: expected file or jdbc, found 'ftp'" in error


def test_refused_capture_is_not_retried(captures: Callable[..., None], monkeypatch: pytest.MonkeyPatch):
    """What a person must mend ends the task without another try."""
    monkeypatch.setattr("frazil.shutdown.end_with_parent", lambda: None)
    captures(LOGS)
    with pytest.raises(AirflowFailException, match="no capture is named 'gone'"):
        CaptureFilesOperator(task_id="capture", capture="gone").execute({"run_id": "manual__1"})


def test_capture_notes_its_failures_where_people_are_told(
    parse: Parse, captures: Callable[..., None], tmp_path: Path
) -> None:
    """Run and task store why they failed, a run that succeeds forgets it, and a promise is a deadline; `alerts: false` is none."""
    captures({**LOGS, "alerts": {"fresh_within": "20m"}}, {**LOGS, "name": "quiet", "alerts": False})
    settings = tmp_path / "settings.yaml"
    settings_body = json.loads(settings.read_text()) | {
        "alerts": {"channels": {"web": {"type": "webhook", "connection": "hook"}}}
    }
    settings.write_text(json.dumps(settings_body))
    bag = parse()
    assert bag.import_errors == {}
    logs, quiet = bag.dags["capture__logs"], bag.dags["capture__quiet"]
    assert (logs.has_on_failure_callback, logs.has_on_success_callback) == (True, True)
    assert logs.get_task("capture").has_on_failure_callback
    (deadline,) = logs.deadline
    assert deadline.callback.kwargs == {"pipeline": "capture.logs"}
    assert not quiet.has_on_failure_callback
    assert logs.tags == {"frazil", "capture"}


def test_lineage_of_a_capture_has_its_files_and_its_topic(captures: Callable[..., None]) -> None:
    captures(LOGS)
    lineage = CaptureFilesOperator(task_id="capture", capture="logs").get_openlineage_facets_on_start()
    assert [(dataset.namespace, dataset.name) for dataset in lineage.inputs] == [("file", "/var/log/app.log*")]
    assert [(dataset.namespace, dataset.name) for dataset in lineage.outputs] == [("kafka://127.0.0.1:1", "logs")]
