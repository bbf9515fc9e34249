"""Iceberg's own maintenance, by Spark, on the catalog of a lab."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from frazil.project import Project
from frazil.runtime.home import Home
from frazil.runtime.jars import jar_paths
from frazil.runtime.java import ensure_java
from frazil.spark.submit.class_archive import archive_options
from frazil.spark.submit.configuration import open_catalog

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@dataclass
class Maintenance:
    """One JVM for all labs; each lab gets a session of its own, because all of them call their catalog `lake`."""

    spark: SparkSession

    def of(self, project: Project) -> Maintained:
        """Maintenance of one lab's tables."""
        settings = project.settings.catalogs["lake"]
        session = self.spark.newSession()
        open_catalog(session, "lake", settings)
        is_local = settings.type == "jdbc"
        return Maintained(session, "" if is_local else ", prefix_listing => true")


@dataclass
class Maintained:
    """Maintenance of the tables of one catalog."""

    session: SparkSession
    listing: str = ""

    def compact(self, table: str) -> Any:
        """Rewrite all data files into one."""
        options = "map('rewrite-all', 'true')"
        return self._call(f"rewrite_data_files(table => '{table}', options => {options})")

    def expire(self, table: str) -> Any:
        """Keep the head alone."""
        future = "TIMESTAMP '2100-01-01 00:00:00'"
        return self._call(f"expire_snapshots(table => '{table}', older_than => {future}, retain_last => 1)")

    def remove_orphans(self, table: str) -> Any:
        """Remove files that no snapshot names and that are older than the three days that are Iceberg's default."""
        return self._call(f"remove_orphan_files(table => '{table}'{self.listing})")

    def rows(self, table: str) -> int:
        """How many rows Spark reads."""
        return self.session.table(f"lake.{table}").count()

    def _call(self, procedure: str) -> Any:
        return self.session.sql(f"CALL lake.system.{procedure}").collect()


@contextmanager
def maintenance(jars: tuple[str, ...] = ("spark",)) -> Iterator[Maintenance]:
    """Start Spark on two cores with a small heap, and some sets of jars."""
    home = Home.resolve()
    java = ensure_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .appName("frazil-maintenance")
        .config("spark.jars", ",".join(str(path) for name in jars for path in jar_paths(home, name)))
        .config("spark.sql.extensions", _EXTENSIONS)
        .config("spark.driver.memory", "768m")
        # Statements of a few rows, each compiled anew: the second compiler takes as long as all the rest.
        .config(
            "spark.driver.extraJavaOptions", f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 {archive_options(home, java)}"
        )
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield Maintenance(session)
    finally:
        session.stop()
