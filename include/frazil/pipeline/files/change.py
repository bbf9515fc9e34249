"""Writes and removes pipeline files for programs: atomically, never over another edit, and on request with a commit in Git."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from frazil.error_codes import BAD_FILE
from frazil.errors import Terminal
from frazil.pipeline.files.files import References, UnreadableFileError, read_text
from frazil.pipeline.files.load import SCHEMAS, ConfigError, load_pipeline
from frazil.pipeline.models.pipeline_file import Pipeline

GIT_SECONDS: Final = 60
"""Timeout of one Git command, which a hook of the repository may delay."""

_ENDING_SECONDS: Final = 5
"""Time that Git gets to remove its locks before it is killed."""

_REFUSED_STEP: Final = "ask for the present configuration, and send the change again"


class ChangeRefused(Terminal):
    """A file was not changed, because another change came first, or because it can't be written. It is as it was before."""

    def __init__(self, message: str, next_step: str) -> None:
        super().__init__(message, code=BAD_FILE, next_step=next_step)


@dataclass(frozen=True, slots=True)
class Commit:
    """Author and message of a commit to make."""

    author: str
    message: str


def checked_pipeline(text: str, folder: Path, references: References) -> Pipeline:
    """Load a text as if it were a pipeline file of a folder, without a change of the folder.

    Raises:
        ConfigError: The text is no valid pipeline file.
    """
    with TemporaryDirectory(prefix="frazil-") as temporary:
        pipelines = Path(temporary) / "pipelines"
        pipelines.mkdir()
        (Path(temporary) / SCHEMAS).symlink_to(folder.absolute().parent / SCHEMAS)  # the folder itself may be a link
        file = pipelines / "pipeline.yaml"
        file.write_text(text, encoding="utf-8")
        try:
            return load_pipeline(file, references)
        except ConfigError as error:
            problems = [problem.replace(temporary, str(folder.parent)) for problem in error.problems]
            raise ConfigError(file, problems, error.code) from None


def read_content(file: Path) -> bytes | None:
    """Content of a file; None if it does not exist.

    Raises:
        ChangeRefused: The file can't be read, or is a link out of its folder.
    """
    if not os.path.lexists(file):
        return None
    try:
        return read_text(file, file.parent).encode()
    except UnreadableFileError as error:
        raise ChangeRefused(str(error), "look at the file and its permissions") from error


def change_file(file: Path, before: bytes | None, after: bytes | None, commit: Commit | None) -> None:
    """Write or remove a file, if its content is still the one that the change is based on.

    Args:
        file: The file, in the folder of pipeline files.
        before: Content that the change is based on; None: no file.
        after: New content; None: remove the file.
        commit: The commit to make; None: none.

    Raises:
        ChangeRefused: The file has another content now, is a link, or can't be written or committed. It is as it was.
    """
    with _locked(file.parent):
        if file.is_symlink():
            raise ChangeRefused(f"{file.name} is a link to another file", "change the file that it leads to")
        if read_content(file) != before:
            raise ChangeRefused(f"{file.name} was changed by somebody else meanwhile", _REFUSED_STEP)
        if commit is not None and _git(file.parent, "status", "--porcelain", "--", file.name):
            step = f"commit or undo them: git -C {file.parent} status"
            raise ChangeRefused(f"{file.name} has changes that are not committed", step)
        _put(file, after)
        if commit is None:
            return
        try:
            _commit(file, commit)
        except ChangeRefused:
            if _is_committed(file, is_there=after is not None):
                return  # something after the commit failed, such as a hook that pushes it
            _put(file, before)
            _git(file.parent, "reset", "--quiet", "--", file.name, refuses=False)
            raise


def _is_committed(file: Path, *, is_there: bool) -> bool:
    """Whether the last commit has the present state of a file."""
    with suppress(ChangeRefused):
        is_tracked = bool(_git(file.parent, "ls-tree", "HEAD", "--", file.name))  # an ignored file has no status
        return is_tracked == is_there and not _git(file.parent, "status", "--porcelain", "--", file.name)
    return False


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that one process of the machine changes it at a time. A killed process loses the lock."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        deadline = time.monotonic() + GIT_SECONDS
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise ChangeRefused(f"another change in {folder} takes longer than {GIT_SECONDS} s", _REFUSED_STEP)
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _put(file: Path, content: bytes | None) -> None:
    written = file.with_name(
        f".{file.name}.{secrets.token_hex(4)}.new"
    )  # not *.yaml, so that it is not loaded half-written
    try:
        if content is None:
            file.unlink(missing_ok=True)
            return
        with written.open("xb") as stream:
            if file.exists():
                os.fchmod(stream.fileno(), file.stat().st_mode & 0o777)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        written.replace(file)
    except OSError as error:
        written.unlink(missing_ok=True)
        raise _unwritable(file, error) from error


def _commit(file: Path, commit: Commit) -> None:
    folder, name = file.parent, file.name
    author = "".join(sign for sign in commit.author if sign.isprintable() and sign not in "<>").strip() or "unknown"
    who = ("-c", "user.name=Frazil", "-c", "user.email=frazil@localhost")
    if file.exists():
        _git(folder, "add", "--", name)
    _git(
        folder,
        *(*who, "commit", "--quiet", "--only", f"--author={author} <{author.replace(' ', '.')}@airflow>"),
        *("--file=-", "--", name),
        text=commit.message,
    )


def _git(folder: Path, *arguments: str, text: str = "", refuses: bool = True) -> str:
    env: Mapping[str, str] = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_LITERAL_PATHSPECS": "1"}
    command = ["git", "-C", str(folder), *arguments]
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
        ) as process:
            try:
                stdout, stderr = process.communicate(text.encode(), GIT_SECONDS)
            except subprocess.TimeoutExpired:
                _end(process)
                raise
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else f"no answer within {GIT_SECONDS} s"
        raise ChangeRefused(f"git in {folder} does not work: {reason}", "install Git, and look at its hooks") from error
    if process.returncode and refuses:
        complaint = (stderr or stdout).decode(errors="replace").strip()
        raise ChangeRefused(
            f"git in {folder} does not commit: {complaint}",
            "make the folder of pipeline files a Git working tree that this process may commit to, or say"
            " rest_api: {changes: file} in the settings",
        )
    return stdout.decode(errors="replace").strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End Git with its hooks, first by SIGTERM: if killed, it leaves its index locked, so that nothing can be committed."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING_SECONDS)


def _unwritable(file: Path, error: OSError) -> ChangeRefused:
    return ChangeRefused(
        f"{file.name} can't be written: {error.strerror}",
        "change the file where it comes from, or let this process write its folder",
    )
