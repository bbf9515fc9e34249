"""Ships Frazil's code to executors: its digest, the paths of its jobs, and the executors' Python. Imports no pyspark."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import frazil
from frazil.error_codes import STACK_FAILED
from frazil.runtime.home import LOOPBACK, Home, checkout, exclusive, private_folder

if TYPE_CHECKING:
    from frazil.pipeline.settings.settings import EngineSettings

WORKERS: Final = "frazil.spark.jobs.workers"
"""The module that Spark's Python workers are forked from."""

_PYTHON: Final = "spark.pyspark.python"

_ELSEWHERE: Final = ("yarn", "k8s://")
"""Begin of masters whose executors are on other machines for sure: none of them finds a driver on the loopback interface."""

_KEPT: Final = 3
"""Archives that stay: of jobs that run while Frazil is edited."""


def executor_python(home: Home, engine: EngineSettings, python: str, sources: str) -> dict[str, str]:
    """Configuration by which executors find their Python and Frazil's code.

    Executors on this machine, or in the same image, use the driver's Python. The engine's `conf` takes precedence, which the
    caller ensures.
    """
    conf = {_PYTHON: python, "spark.pyspark.driver.python": python}
    if engine.archives:
        conf["spark.archives"] = ",".join(engine.archives)
        conf[_PYTHON] = f"./{_unpacked(engine.archives[0])}/bin/python"
    if engine.py_files == "shared":
        return conf | {"spark.python.daemon.module": WORKERS, "spark.executorEnv.PYTHONPATH": sources}
    if engine.py_files == "preinstalled":
        return conf | {"spark.python.daemon.module": WORKERS}
    # Spark's own daemon: it begins before Spark adds the archive to the path of its workers.
    return conf | {"spark.submit.pyFiles": str(code_archive(home))}


def driver_place(master: str) -> dict[str, str]:
    """Address at which executors reach the driver, unless the engine sets it: this machine. Cluster managers leave it to
    Spark.
    """
    if master.startswith(_ELSEWHERE):
        return {}
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}


def code_archive(home: Home) -> Path:
    """A zip of Frazil's present package, created once per content."""
    folder = private_folder(home.root / "py-files")
    archive = folder / f"frazil-{digest()}.zip"
    with exclusive(folder / ".lock", lambda: None):
        if not archive.is_file():
            _pack(archive)
            for old in sorted(folder.glob("frazil-*.zip"), key=lambda archive: archive.stat().st_mtime)[:-_KEPT]:
                old.unlink()
    return archive


def _pack(archive: Path) -> None:
    package = Path(frazil.__file__).parent
    unfinished = archive.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as written:
        for file in sorted(package.rglob("*")):
            if file.is_file() and file.suffix != ".pyc":
                written.write(file, file.relative_to(package.parent))
    unfinished.rename(archive)


def _unpacked(archive: str) -> str:
    """Name of the folder that Spark unpacks an archive into: what stands behind `#`, else the file's name."""
    path, _, name = archive.partition("#")
    return name or path.rpartition("/")[2]


def digest() -> str:
    """A digest of the package's present code: a long-running process may outlive an upgrade, and a checkout's version does
    not change with every edit.
    """
    code_hash = hashlib.sha256()
    for name, content in sorted(_modules(_package())):
        code_hash.update(f"{name}\n".encode())
        code_hash.update(content)
    return code_hash.hexdigest()[:16]


def job_file(name: str) -> Path:
    """The program that Spark runs for a job: of the checkout; a wheel has it in the package.

    Raises:
        Terminal: It does not exist, and no other try will find it.
    """
    file = (checkout() or Path(frazil.__file__).parent) / "spark_jobs" / name
    if not file.is_file():
        raise STACK_FAILED.terminal(f"{file} does not exist", next_step="reinstall Frazil: a part of it is missing")
    return file


def _package() -> Path | zipfile.Path:
    """The package's folder, or that in the archive that it is imported from."""
    folder = Path(frazil.__file__).parent
    return folder if folder.is_dir() else zipfile.Path(folder.parent, f"{folder.name}/")


def _modules(folder: Path | zipfile.Path, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for path in folder.iterdir():
        if path.is_dir():
            yield from _modules(path, f"{prefix}{path.name}/")
        elif path.name.endswith(".py"):
            yield f"{prefix}{path.name}", path.read_bytes()
