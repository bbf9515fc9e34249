"""One small Spark session for all tests of this tier."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from frazil.runtime.home import Home
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from frazil.spark.submit.class_archive import archive_options
from frazil.spark.submit.configuration import WORKERS

JARS = ("spark", "postgres")
MARKED = "FRAZIL_MARKED", "marked-b3a71f"
"""A variable in the environment of Spark's JVM, and its value: it must never come out of there."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two local cores, a fixed small heap, and the jars of Frazil's engines."""
    home = Home.resolve()
    fetch(home, *JARS)
    java = ensure_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ[MARKED[0]] = MARKED[1]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(home.project / "include"), os.environ.get("PYTHONPATH", "")])
    session = (
        SparkSession.builder.master("local[2]")
        .appName("frazil-tests")
        .config("spark.jars", ",".join(str(path) for name in JARS for path in jar_paths(home, name)))
        .config("spark.driver.memory", "768m")
        # Statements of a few rows, each compiled anew: the second compiler takes as long as all the rest.
        .config(
            "spark.driver.extraJavaOptions", f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {archive_options(home, java)}"
        )
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.python.daemon.module", WORKERS)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
