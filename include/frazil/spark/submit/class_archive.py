"""An archive of the classes that Spark loads when it starts (AppCDS, Java 13 and later): jobs start with a third less CPU time.

The JVM maps the archive instead of reading, checking and laying out some twenty thousand classes. It fits one Java and one folder
of Spark's jars. After a change of either, jobs start without it, until `python -m frazil.spark.submit.class_archive`, which the
set-up calls, makes it anew. Imports no pyspark: submitters must not load it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from frazil.error_codes import SPARK_UNAVAILABLE
from frazil.errors import FrazilError
from frazil.runtime.home import Home, exclusive, inherited_environment, interpreter_bin, private_folder
from frazil.runtime.java import Java, ensure_java, ivy_jar
from frazil.spark.submit.configuration import conf_arguments

_TRAINING: Final = Path(__file__).parents[1] / "jobs" / "training.py"
"""The job whose classes are archived."""

_SECONDS: Final = 600.0
"""Bounds the job that makes an archive, which takes 30 s on two idle cores."""

_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Keeps the JVM's messages about an unfit archive, which it ignores, out of each job's log."""


def archive_options(home: Home, java: Java) -> str:
    """Options of a JVM that runs Spark; empty if there is no archive for this Java and these jars."""
    file = archive_file(home, java)
    return f"-XX:SharedArchiveFile={file} {_QUIET}" if file.is_file() else ""


def archive_file(home: Home, java: Java) -> Path:
    """Path of the archive for a Java and Spark's jars, whether or not it exists; its name is a digest of both."""
    release = java.home / "release"
    inputs = [str(java.home.resolve()), release.read_text(encoding="utf-8") if release.is_file() else str(java.major)]
    for jar in sorted(_spark_jars().iterdir()):
        status = jar.stat()
        inputs.append(f"{jar} {status.st_size} {status.st_mtime_ns}")  # the JVM compares these as well
    digest = hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:16]
    return home.jars / f"spark-classes-{digest}.jsa"


def make_archive(home: Home, report: Callable[[str], None] = lambda _: None) -> Path:
    """Create the archive unless it exists, by a small job that loads the classes all jobs need.

    Raises:
        Retryable: The job failed; the message quotes the end of its output.
        Terminal: There is no suitable Java.
    """
    java = ensure_java(report)
    file = archive_file(home, java)
    with exclusive(private_folder(home.jars) / ".archive.lock", lambda: report("spark: waiting for another archive")):
        if not file.is_file():
            report("spark: archiving the classes that it starts with")
            _make(java, file)
    return file


def _make(java: Java, file: Path) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    python = str(interpreter_bin() / "python")
    variables = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    options = f"-XX:+UseParallelGC -XX:ArchiveClassesAtExit={unfinished} {_QUIET}"
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": options,
    }
    submit = [str(interpreter_bin() / "spark-submit"), "--master", "local[2]"]
    command = [*submit, *conf_arguments(conf), str(_TRAINING)]
    try:
        ran = subprocess.run(
            command,
            env=inherited_environment() | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise SPARK_UNAVAILABLE.retryable(f"spark: archiving its classes took over {_SECONDS:.0f} s") from error
    if ran.returncode or not unfinished.is_file():
        log_end = "\n".join((ran.stdout + ran.stderr).splitlines()[-15:])
        raise SPARK_UNAVAILABLE.retryable(
            f"spark: archiving its classes ended with {ran.returncode}; its last lines:\n{log_end}"
        )
    unfinished.rename(file)


def _spark_jars() -> Path:
    return ivy_jar().parent


def _main() -> int:
    def say(line: str) -> None:
        print(line, file=sys.stderr)  # noqa: T201, a command's progress

    try:
        make_archive(Home.resolve(), say)
    except FrazilError as error:
        # Spark works without the archive, only slower: no reason to fail a set-up.
        say(f"{error.label}: {error}\n  Spark starts without its archive")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
