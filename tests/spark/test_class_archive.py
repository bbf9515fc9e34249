"""The archive of Spark's classes: used where it fits, and never in the way."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from frazil.project import Project
from frazil.runtime.home import Home
from frazil.runtime.java import ensure_java
from frazil.spark.submit import class_archive
from frazil.spark.submit.class_archive import archive_file, archive_options, make_archive
from frazil.spark.submit.submission import maintenance_submission


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home without an archive."""
    return replace(Home.resolve(), root=tmp_path, jars=tmp_path / "jars")


def test_job_without_archive_gets_no_jvm_option(home: Home):
    """Then the JVM gets no option of it: it starts as it always did."""
    assert archive_options(home, ensure_java()) == ""


def test_archive_of_other_jars_is_not_used(home: Home, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Its name says which jars and which Java it is of: after an upgrade there is none until it is made anew."""
    java = ensure_java()
    before = archive_file(home, java)
    second_path = tmp_path / "other"
    second_path.mkdir()
    (second_path / "spark-core.jar").write_bytes(b"jar")
    monkeypatch.setattr(class_archive, "_spark_jars", lambda: second_path)
    after = archive_file(home, java)
    (second_path / "spark-core.jar").write_bytes(b"jar of another version")

    assert len({before, after, archive_file(home, java)}) == 3


def test_damaged_archive_does_not_keep_jvm_from_starting(home: Home):
    """It is passed over in silence."""
    java = ensure_java()
    archive_file(home, java).parent.mkdir(parents=True)
    archive_file(home, java).write_bytes(b"no archive")
    options = archive_options(home, java).split()

    ran = subprocess.run([str(java.command), *options, "-version"], capture_output=True, text=True, check=True)

    assert "cds" not in ran.stdout + ran.stderr


def test_existing_archive_is_not_rebuilt(home: Home):
    """Set-up asks at every call: where it is there, nothing is started."""
    file = archive_file(home, ensure_java())
    file.parent.mkdir(parents=True)
    file.touch()
    lines: list[str] = []

    assert make_archive(home, lines.append) == file
    assert lines == []


PIPELINE = {
    "name": "orders",
    "source": {"topics": ["orders"]},
    "destinations": [{"table": "shop.orders", "columns": {"id": "long"}}],
}


@pytest.mark.parametrize(
    ("own", "chosen"), [(None, "-XX:+UseParallelGC"), ("-XX:+UseG1GC -Xss4m", "-XX:+UseG1GC -Xss4m")]
)
def test_engine_that_names_garbage_collector_starts(tmp_path: Path, own: str | None, chosen: str):
    """A JVM that is told two of them refuses: options of the settings take the place of ours, the archive's aside."""
    (tmp_path / "orders.yaml").write_text(json.dumps(PIPELINE))
    settings = {
        "clusters": {"local": {"bootstrap_servers": "127.0.0.1:1"}},
        "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}},
        "engines": {"spark": {"conf": {} if own is None else {"spark.driver.extraJavaOptions": own}}},
    }
    (tmp_path / "settings").write_text(json.dumps(settings))
    places = {
        "FRAZIL_PIPELINES": str(tmp_path),
        "FRAZIL_SETTINGS": str(tmp_path / "settings"),
        "FRAZIL_HOME": str(tmp_path),
    }
    project = Project.load(places | {"FRAZIL_JARS": str(Home.resolve().jars)})

    job = maintenance_submission(project, project.pipeline("orders"), "r1")

    options = job.conf["spark.driver.extraJavaOptions"]
    assert options.removeprefix(archive_options(project.home, ensure_java())).strip() == chosen
