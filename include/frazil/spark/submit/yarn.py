"""Drivers on YARN: the project that Frazil sends them, their applications, and their logs. Imports no pyspark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from frazil.pipeline.files.files import MAX_BYTES
from frazil.pipeline.files.folder import CAPTURES
from frazil.pipeline.files.load import read_yaml
from frazil.project import SHIPPED, SHIPPED_VARIABLE, Project
from frazil.runtime.home import HOME_VARIABLE, PRIVATE_FILE, PROJECT_VARIABLE, interpreter_bin, private_folder

_FOLDER: Final = "frazil-project"
"""Folder of the project in the driver's container."""

_DRIVER_VARIABLE: Final = "spark.yarn.appMasterEnv."

_APPLICATION: Final = re.compile(r"\bapplication_\d+_\d+\b")

_COMMAND: Final = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
"""The class of the command `yarn application`. Spark's jars have it, so that no Hadoop needs to be installed here."""

_QUEUED: Final = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED"
"""States of an application whose driver does not run yet."""

_CLIENT_SECONDS: Final = 60.0
"""Bounds one call of YARN's client, which takes 2 s. The client itself never gives up on a ResourceManager that does not answer."""


def driver_configuration(python: str, sources: str | None) -> dict[str, str]:
    """Configuration of a driver in a YARN container; the engine's `conf` overrides it.

    Args:
        python: Python of driver and executors.
        sources: Python path to Frazil in the container; None if Frazil is installed there.
    """
    return {
        "spark.pyspark.driver.python": python,
        # Only Airflow retries: a second driver of YARN would not know how the first one ended.
        "spark.yarn.maxAppAttempts": "1",
        f"{_DRIVER_VARIABLE}{PROJECT_VARIABLE}": _FOLDER,
        f"{_DRIVER_VARIABLE}{HOME_VARIABLE}": "frazil-home",
        f"{_DRIVER_VARIABLE}{SHIPPED_VARIABLE}": "1",
        **({} if sources is None else {f"{_DRIVER_VARIABLE}PYTHONPATH": sources}),
    }


@contextmanager
def sent_to_yarn(project: Project, conf: Mapping[str, str], attempt: str) -> Iterator[dict[str, str]]:
    """Configuration of a job, beside `conf`, that sends the project to its driver, and tags its application so that it is found.

    The archive with the project exists while the block runs.
    """
    archive = private_folder(project.home.root / "plans") / f"{attempt}.zip"
    added = {"spark.archives": f"{archive}#{_FOLDER}", "spark.yarn.tags": _tag(attempt)}
    try:
        _pack(project, archive)
        yield {key: ",".join(filter(None, [conf.get(key), value])) for key, value in added.items()}
    finally:
        archive.unlink(missing_ok=True)


def end_queued_application(attempt: str, env: Mapping[str, str]) -> None:
    """Kill the application of an attempt if it is queued. If YARN does not answer, the driver later finds no order and ends."""
    queued = _APPLICATION.findall(_yarn(env, "-list", "-appTags", _tag(attempt), "-appStates", _QUEUED))
    for application in dict.fromkeys(queued):
        _yarn(env, "-kill", application)


def place_of_log(log: Path) -> str:
    """Where people find the logs of a job on YARN: the driver's there, and spark-submit's here."""
    application = _APPLICATION.search(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else None
    return str(log) if application is None else f"yarn logs -applicationId {application[0]}, of spark-submit {log}"


def _tag(attempt: str) -> str:
    return f"frazil-{attempt}"


def _yarn(env: Mapping[str, str], *arguments: str) -> str:
    """The output of a command of YARN's client; empty if YARN does not answer."""
    command = [str(interpreter_bin() / "spark-class"), _COMMAND, "application", *arguments]
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            command, env=os.environ | env, capture_output=True, text=True, timeout=_CLIENT_SECONDS, check=False
        ).stdout
    return ""


def _pack(project: Project, archive: Path) -> None:
    """Pack settings, pipelines and captures for a driver elsewhere, with the values of their references, which may be secret."""
    folders = {"pipelines": project.pipelines_folder, CAPTURES: project.pipelines_folder.parent / CAPTURES}
    files = {
        f"include/{name}/{path.relative_to(folder)}": path.read_bytes()
        for name, folder in folders.items()
        for path in sorted(folder.rglob("*"))
        if _is_readable(path, folder)
    }
    references = project.pipelines.references
    texts = [content.decode(errors="replace") for name, content in files.items() if name.endswith((".yaml", ".yml"))]
    files["include/settings.yaml"] = project.settings_file.read_bytes()
    files[f"include/{SHIPPED}"] = json.dumps(references.to_ship(read_yaml(project.settings_file), texts)).encode()
    archive.touch(PRIVATE_FILE, exist_ok=False)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            written.writestr(name, content)


def _is_readable(path: Path, folder: Path) -> bool:
    """Whether a pipeline may read a file of its folder: no link to another folder, and no file that is too large."""
    real = path.resolve()
    return real.is_file() and real.is_relative_to(folder.resolve()) and real.stat().st_size <= MAX_BYTES
