"""What a job says of a Spark that does not start."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from frazil.errors import Retryable
from frazil.project import Project
from frazil.spark.jobs import driver

GIVEN_UP = """An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at: org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:59)"""


def heard(monkeypatch: pytest.MonkeyPatch, project: Project, text: str) -> str:
    """The error of a job over whose Spark that was said."""

    def started() -> None:
        raise Py4JError(text)

    monkeypatch.setattr(driver, "started_session", started)
    with pytest.raises(Retryable) as error, driver.session(project):
        pass
    return str(error.value)


def test_unreachable_master_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark itself says only that it has stopped: the error says why, and where to look."""
    log_text = heard(monkeypatch, Project.load({}), GIVEN_UP)

    assert "no master took the job within a minute" in log_text
    assert "frazil doctor --spark" in log_text
    assert "IllegalStateException" not in log_text


def test_spark_that_cannot_start_names_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other reason is told as it came, in one line."""
    log_text = heard(monkeypatch, Project.load({}), "no space\nleft on device")

    assert "Spark did not start: Py4JError: no space left on device" in log_text
