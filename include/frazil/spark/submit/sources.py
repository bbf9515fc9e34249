"""Which Frazil this is, by its code, not by its version, which a checkout does not change with every edit; and where its jobs are."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import frazil
from frazil.error_codes import STACK_FAILED
from frazil.runtime.home import checkout


def digest() -> str:
    """A digest of the package's code as it is now: a process that waits for long may outlive an upgrade."""
    code_hash = hashlib.sha256()
    for name, content in sorted(_modules(_package())):
        code_hash.update(f"{name}\n".encode())
        code_hash.update(content)
    return code_hash.hexdigest()[:16]


def job_file(name: str) -> Path:
    """The program that Spark runs for a job: of the checkout; a wheel has it in the package.

    Raises:
        Terminal: It is not there, and no other try will find it.
    """
    file = (checkout() or Path(frazil.__file__).parent) / "spark_jobs" / name
    if not file.is_file():
        raise STACK_FAILED.terminal(f"{file} is not there", next_step="install Frazil anew: a part of it is missing")
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
