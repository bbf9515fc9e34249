"""Which pyspark the processes that Spark starts read."""

from __future__ import annotations

import sys

import pytest

from frazil.spark.jobs.unzipped import prefer_unzipped

SITE = "/opt/venv/lib/python3.11/site-packages"
ZIPS = [f"{SITE}/pyspark/python/lib/pyspark.zip", f"{SITE}/pyspark/python/lib/py4j-0.10.9.9-src.zip"]


def test_modules_are_compiled_anew_in_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The zips inside an installation that is on the path itself are passed over; everything else stays, in order."""
    monkeypatch.setattr(sys, "path", ["", *ZIPS, "/srv/include", SITE, "/srv/job.zip"])

    prefer_unzipped()

    assert sys.path == ["", "/srv/include", SITE, "/srv/job.zip"]


def test_the_pyspark_of_a_cluster_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that was not installed by pip has its pyspark in the zip alone, and an installed one may be of another version."""
    path = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10.9.9-src.zip", SITE]
    monkeypatch.setattr(sys, "path", list(path))

    prefer_unzipped()

    assert sys.path == path
