"""Spark's private configuration, in a file that goes with the job."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from frazil.runtime.home import Home
from frazil.spark.submit import job_process
from frazil.spark.submit.job_process import private_properties


def test_secrets_of_a_killed_submitter_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job, of whichever pipeline, removes them, half-written ones too; those of a job that starts now stay."""
    home, conf = Home.resolve({"FRAZIL_HOME": str(tmp_path)}), {"spark.own": "hunter2"}
    with private_properties(home, "orders", "manual__1", conf) as second_file:
        assert second_file is not None
        leftovers = [second_file.with_name(name) for name in ("lost.properties", ".lost.properties.x1")]
        for file in leftovers:
            file.write_text("spark.own=hunter2")
            os.utime(file, (time.time() - 7200,) * 2)
        with private_properties(home, "payments", "manual__1", {}):
            assert [file.exists() for file in (*leftovers, second_file)] == [False, False, True]

    def fail(_: object) -> str:
        raise OSError("disk is full")

    monkeypatch.setattr(job_process, "properties_text", fail)
    with pytest.raises(OSError, match="full"), private_properties(home, "orders", "manual__2", conf):
        pass
    assert list((tmp_path / "plans").iterdir()) == []


def test_spark_defaults_without_utf8_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A spark-defaults.conf that is no UTF-8 is read as Spark reads it."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_bytes(b"spark.app.name caf\xe9\n")

    assert job_process.properties_text({"spark.own": "a"}).startswith("spark.app.name caf\ufffd\n\n")
