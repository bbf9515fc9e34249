"""The files of a project as a revision of its git repository has them."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from frazil.errors import Terminal
from frazil.pipeline.load import SCHEMAS
from frazil.project import Places


@dataclass(frozen=True, slots=True)
class Files:
    """Where copies of the files of a revision lie."""

    pipelines: Path
    settings: Path


@contextmanager
def files_of(places: Places, revision: str) -> Iterator[Files]:
    """Copy pipelines, schemas and settings of a revision into a folder of their own, which goes at the end.

    Raises:
        Terminal: There is no such revision, or the files are in no git repository.
    """
    folder = places.pipelines_folder.resolve()
    top = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).strip())
    _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", of=revision)
    with TemporaryDirectory(prefix="frazil-") as made:
        root = Path(made)
        files = Files(root / "files" / "pipelines", root / "settings.yaml")
        files.pipelines.mkdir(parents=True)
        for name in (folder, folder.parent / SCHEMAS):
            _copy(top, revision, name, files.pipelines.parent / ("pipelines" if name == folder else SCHEMAS))
        settings = places.settings_file.resolve()
        if settings.is_relative_to(top):
            at = settings.relative_to(top).as_posix()
            if _git(top, "ls-tree", "--name-only", revision, "--", at):
                files.settings.write_bytes(_git(top, "show", f"{revision}:{at}"))
        yield files


def _copy(top: Path, revision: str, folder: Path, to: Path) -> None:
    """Copy a folder as it is, whatever else lies in it; one beside the repository is in no revision of it."""
    if not folder.is_relative_to(top):
        return
    at = folder.relative_to(top).as_posix()
    listed = _git(top, "ls-tree", "-r", "-z", "--name-only", revision, "--", f"{at}/")
    for name in filter(None, os.fsdecode(listed).split("\0")):
        copy = to / Path(name).relative_to(at)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(_git(top, "show", f"{revision}:{name}"))


def _git(folder: Path, *arguments: str, of: str | None = None) -> bytes:
    program = shutil.which("git")
    if program is None:
        raise Terminal("git is not installed", next_step="install it: --diff reads the files of a revision with it")
    done = subprocess.run([program, "-C", str(folder), *arguments], capture_output=True, check=False)
    if done.returncode:
        what = (
            f"{folder}: no revision is named {of!r}"
            if of
            else f"git in {folder}: {done.stderr.decode(errors='replace').strip()}"
        )
        raise Terminal(
            what, next_step="name a branch, a tag or a commit of the repository that holds the pipeline files"
        )
    return done.stdout
