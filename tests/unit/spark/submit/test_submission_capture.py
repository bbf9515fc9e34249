"""How the job of a capture of a database is started, without starting it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from frazil.pipeline.settings.capture import JdbcCapture
from frazil.project import Project
from frazil.spark.submit import submission as submit
from frazil.spark.submit.submission import Submission, capture_submission

CAPTURE = JdbcCapture(capture="jdbc", name="rows", topic="rows", database="shop", table="orders", mode="bulk")
ZONE, OPTIONS = "spark.sql.session.timeZone", "spark.executor.extraJavaOptions"


def job_of(folder: Path, conf: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Submission:
    """The job with such an engine."""
    (folder / "pipelines").mkdir()
    (folder / "settings.yaml").write_text(f"""
clusters: {{local: {{bootstrap_servers: "127.0.0.1:1"}}}}
catalogs: {{lake: {{uri: "sqlite:///c.db", warehouse: "file:///w"}}}}
engines: {{spark: {{master: "local[1]", conf: {dict(conf)}}}}}
databases: {{shop: {{url: "jdbc:sqlite:x", driver: org.sqlite.JDBC, jars: [{__file__}]}}}}
""")
    own = {"FRAZIL_HOME": "home", "FRAZIL_SETTINGS": "settings.yaml", "FRAZIL_PIPELINES": "pipelines"}
    monkeypatch.setattr(submit, "fetch", lambda *_: None)
    return capture_submission(Project.load({key: str(folder / name) for key, name in own.items()}), CAPTURE, "a run")


def test_rows_are_sorted_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the engine says, the session of a capture has UTC: the order of times as text is theirs."""
    job = job_of(tmp_path, {ZONE: "Europe/Berlin", "spark.a": "1"}, monkeypatch)

    assert (job.conf[ZONE], job.private) == ("UTC", {"spark.a": "1"})
    assert job.conf[OPTIONS] == "-Duser.timezone=UTC"


def test_options_of_executors_stay_out_of_the_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine says of them may be secret: it comes to Spark by the private file, with the clock."""
    job = job_of(tmp_path, {OPTIONS: "-Dkey=hunter2"}, monkeypatch)

    assert "hunter2" not in " ".join(job.command([], tmp_path / "private"))
    assert job.private[OPTIONS] == "-Dkey=hunter2 -Duser.timezone=UTC"
