"""What a job is asked to do, and what came of it, as small objects in storage: the process that started the job may be lost
meanwhile, or be on another machine.

An order lies beside the ledger's metadata, where manifests are, under a name that every try of a run finds. It names the attempt
that counts. An outcome has its attempt in its name, so a late outcome of an older attempt is never read. The reader of an
outcome removes both files; orphan removal deletes the rest. Imports no pyspark, and PyIceberg when it is used: DAG files name
what is here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from frazil.error_codes import BAD_HANDOVER, RUN_OVERTAKEN
from frazil.errors import FrazilError, Retryable, Terminal, error_from_json, error_to_json
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.catalogs import SUFFIX
from frazil.project import Project
from frazil.runtime.home import Home, private_folder
from frazil.spark.submit.configuration import scheme_of

if TYPE_CHECKING:
    from frazil.iceberg.catalog.catalog import Folder

HANDOVER_VERSION: Final = 1
"""Version of order and outcome."""

BEAT_SECONDS: Final = 15.0
"""How often a driver that outlives its submitter says that it is at work. For so long a folder that was opened is used, too: a REST
catalog is asked for a table to open it."""

_LOST_SECONDS: Final = 3 * BEAT_SECONDS
"""Without a heartbeat for so long a driver counts as lost. If it only slept, two drivers work at once, which does no harm."""

_LOOK_SECONDS: Final = 2.0
"""Between two looks: for the outcome of a driver that is at work, and of that driver whether its attempt still counts. With the
time that it has to end, it has ended before who asked it gives up."""

_ATTEMPT: Final = re.compile(r"[0-9a-f]{32}")
"""How an attempt is drawn. It becomes part of a file's name, and strangers may write to the folder."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an order: the result of the job, if it has one, or an error."""

    result: str | None = None
    error: FrazilError | None = None

    def to_body(self) -> dict[str, Any]:
        """In JSON's terms."""
        error = None if self.error is None else json.loads(error_to_json(self.error))
        return {"error": error, "result": self.result}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Outcome:
        """Read it."""
        result, error = body["result"], body["error"]
        texts = [result] if error is None else [result, error["next_step"], error["message"] or ""]
        if not all(text is None or isinstance(text, str) for text in texts):
            raise TypeError("expected text")
        return cls(result, None if error is None else error_from_json(json.dumps(error)))


@dataclass(frozen=True, slots=True)
class Handover:
    """One attempt of a run at its order.

    Attributes:
        name: Of the pipeline, capture or probe.
        location: Folder of the order and its outcome.
        key: Of the run, the same in every attempt.
        attempt: Drawn at random. Only its own outcome is believed.
    """

    project: Project
    name: str
    location: str
    key: str
    attempt: str

    @classmethod
    def begin(cls, project: Project, location: str, name: str, run: str) -> Self:
        """A new attempt of a run, which takes over from earlier ones once it hands its order over."""
        key = hashlib.sha256(f"{name}\n{run}".encode()).hexdigest()[:16]
        return cls(project, name, location, key, secrets.token_hex(16))

    @classmethod
    def from_arguments(cls, project: Project, prog: str, argv: list[str]) -> Self:
        """Parse a job's command line: the reverse of `arguments`."""
        parser = argparse.ArgumentParser(prog=prog)
        parser.add_argument("--pipeline", required=True, help="name of the pipeline or capture")
        parser.add_argument("--order", required=True, help="address of the order, which says what to do")
        parser.add_argument("--attempt", required=True, help="attempt at the order that this job is")
        arguments = parser.parse_args(argv)
        location, _, file = arguments.order.rpartition("/")
        prefix, suffix = f"frazil-{arguments.pipeline}-job-", ".json"
        if not (file.startswith(prefix) and file.endswith(suffix)):
            raise BAD_HANDOVER.terminal(
                f"--order {arguments.order}: this is no address of an order of {arguments.pipeline}"
            )
        key = file.removeprefix(prefix).removesuffix(suffix)
        return cls(project, arguments.pipeline, location, key, arguments.attempt)

    @property
    def arguments(self) -> list[str]:
        """Command-line arguments of the job. No secrets: they show in lists of processes and in consoles."""
        return ["--pipeline", self.name, "--order", f"{self.location}/{self._order_file}", "--attempt", self.attempt]

    def hand_over(self, order: str, *, outlives: bool = False) -> None:
        """Write the order. From here on earlier attempts of the run are no longer valid.

        With `outlives` the driver continues when the process that started it has ended.
        """
        body = {"v": HANDOVER_VERSION, "attempt": self.attempt, "outlives": outlives, "order": order}
        _write(self._folder(), self._order_file, json.dumps(body))

    def collect(self, order: str) -> Outcome | None:
        """The result that an earlier attempt at the same order left, and that was not collected: then there is nothing to do.

        Waits while the driver of that attempt is at work. None if it failed, or left nothing, or did another order of the run,
        which was planned again.
        """
        folder = self._folder()
        body = _read(folder, self._order_file)
        if body is None or body.get("order") != order:
            return None
        earlier = replace(self, attempt=str(body["attempt"]))
        outcome = earlier.await_outcome() if body.get("outlives") else earlier.find(folder)
        if outcome is None or outcome.error is not None:
            return None
        earlier.remove(folder)
        return outcome

    def take(self, lost: FrazilError, log: str | None = None) -> str | None:
        """The result of this attempt, whose job has ended; None of a job that has none. Order and outcome are removed.

        Args:
            lost: What to raise if there is no outcome: the job was lost, and the tables know what it did.
            log: Where the log of the job is, for people.

        Raises:
            FrazilError: The error of the job, or `lost`.
        """
        folder = self._folder()
        outcome = self.find(folder)
        if outcome is None:
            raise lost
        self.remove(folder)
        if (error := outcome.error) is not None:
            step = "; ".join(filter(None, (error.next_step, log and f"the whole log: {log}")))
            raise type(error)(error.message, code=error.code, next_step=step or None)
        return outcome.result

    def withdraw(self) -> None:
        """Remove the order: a driver that outlives its submitter stops in order, within seconds; one to come does nothing.

        Nothing happens if another attempt took the order over: a process that lost its task must not stop the driver of the
        next try.
        """
        folder = self._folder()
        if self._counts(_read(folder, self._order_file)):
            try:
                _delete(folder, self._order_file)
            except Terminal:  # a store that forbids it takes an order of nobody in its place
                _write(folder, self._order_file, json.dumps({"v": HANDOVER_VERSION, "attempt": secrets.token_hex(16)}))

    def read_order(self) -> tuple[str, bool]:
        """What the job is to do, and whether its driver outlives its submitter.

        Raises:
            Retryable: This attempt is no longer valid: another one took the order over, or it was withdrawn.
        """
        order = _read(self._folder(), self._order_file)
        if order is None or not self._counts(order) or not isinstance(order.get("order"), str):
            raise RUN_OVERTAKEN.retryable(
                f"{self.location}/{self._order_file} is not for attempt {self.attempt}"
                f" {'any more' if order is None else 'but for ' + str(order['attempt'])}: it was withdrawn, or another attempt took it over",
                next_step="nothing is lost; the newest attempt continues from the tables",
            )
        return str(order["order"]), bool(order.get("outlives"))

    def leave(self, outcome: Outcome) -> None:
        """Write the outcome of this attempt. A success stays: a driver that slept meanwhile leaves no error in its place."""
        folder = self._folder()
        earlier = self.find(folder) if outcome.error is not None else None
        if earlier is None or earlier.error is not None:
            body = {"v": HANDOVER_VERSION, "attempt": self.attempt, **outcome.to_body()}
            _write(folder, self._outcome_file, json.dumps(body))

    def forget_failure(self) -> None:
        """Remove what an earlier driver of this attempt failed with: it is at work again, and who looks must wait."""
        # Not allowed to, or storage that is away: the outcome to come takes its place.
        with suppress(Retryable, Terminal):
            folder = self._folder()
            earlier = self.find(folder)
            if earlier is not None and earlier.error is not None:
                _delete(folder, self._outcome_file)

    def await_outcome(self) -> Outcome | None:
        """The outcome of this attempt, for which its driver is waited for; None if no driver is at work on it."""
        beat, until, folder, due = None, 0.0, self._folder(), time.monotonic() + BEAT_SECONDS
        while True:
            if time.monotonic() >= due:
                folder, due = self._folder(), time.monotonic() + BEAT_SECONDS
            outcome = self.find(folder)
            latest = folder.find(_named(folder, self._beat_file)) if outcome is None else None
            if outcome is not None or latest is None:
                return outcome
            if latest != beat:
                beat, until = latest, time.monotonic() + _LOST_SECONDS
            elif time.monotonic() >= until:
                return None
            time.sleep(_LOOK_SECONDS)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """While the block runs, say again and again that this attempt is at work, and stop it once it is no longer valid.

        Raises:
            Retryable: It is no longer valid.
        """
        ended = threading.Event()
        self.read_order()  # no signal: the first process of a container would ignore it here
        folder, due = self._folder(), time.monotonic() + BEAT_SECONDS
        _write(folder, self._beat_file, str(due))

        def beat() -> None:
            nonlocal folder, due
            pause = min(_LOOK_SECONDS, BEAT_SECONDS)
            while not ended.wait(pause):
                with suppress(Retryable, Terminal):  # storage that is away for a while: the next look may get there
                    is_due = time.monotonic() >= due
                    folder = self._folder() if is_due else folder
                    if not self._counts(_read(folder, self._order_file)):
                        os.kill(os.getpid(), signal.SIGTERM)
                        pause = BEAT_SECONDS  # a run that has ended heeds no signal: another one would kill it while its Spark stops
                    elif is_due:
                        due = time.monotonic() + BEAT_SECONDS
                        _write(folder, self._beat_file, str(due))

        threading.Thread(target=beat, daemon=True, name="handover").start()
        try:
            yield
        finally:
            ended.set()

    def _counts(self, order: Mapping[str, Any] | None) -> bool:
        """Whether an order is of this attempt."""
        return order is not None and order["attempt"] == self.attempt

    def find(self, folder: Folder) -> Outcome | None:
        """The outcome of this attempt; None if there is none, or it is none of ours."""
        body = _read(folder, self._outcome_file)
        try:
            return None if body is None or body["attempt"] != self.attempt else Outcome.from_body(body)
        except (KeyError, TypeError):
            return None

    def remove(self, folder: Folder) -> None:
        """Remove what came of the order, and the order, unless another attempt took it over."""
        for file in (self._outcome_file, self._beat_file):
            with suppress(Retryable, Terminal):  # not allowed to: orphan removal will
                _delete(folder, file)
        with suppress(Retryable, Terminal):
            if self._counts(_read(folder, self._order_file)):
                _delete(folder, self._order_file)

    def _folder(self) -> Folder:
        """The folder, opened again: vended credentials expire within an hour."""
        from frazil.iceberg.catalog.catalog import Folder

        if scheme_of(self.location) in ("", "file"):
            return Folder(self.location, {})
        pipeline = self.project.pipeline(self.name)
        storage = self.project.lake(pipeline.home_catalog).storage((pipeline.ledger_table,))
        return Folder(self.location, {} if storage is None else storage.properties)

    @property
    def _order_file(self) -> str:
        return f"frazil-{self.name}-job-{self.key}.json"

    @property
    def _outcome_file(self) -> str:
        return f"frazil-{self.name}-job-{self.key}-{self.attempt}.json"

    @property
    def _beat_file(self) -> str:
        return f"frazil-{self.name}-job-{self.key}-{self.attempt}-beat.json"


def _read(folder: Folder, file: str) -> dict[str, Any] | None:
    """The body of an order or an outcome; None if there is none of this version, or it is half written or a stranger's."""
    text = folder.find(_named(folder, file))
    try:
        body = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.get("v") != HANDOVER_VERSION:
        return None
    attempt = body.get("attempt")
    return body if isinstance(attempt, str) and _ATTEMPT.fullmatch(attempt) else None


def _write(folder: Folder, file: str, text: str) -> None:
    folder.write(_named(folder, file), text)


def _delete(folder: Folder, file: str) -> None:
    folder.delete(_named(folder, file))


def _named(folder: Folder, file: str) -> str:
    """The file's name in a store: one of managed tables may take only names of Iceberg's files."""
    return f"{file}{folder.properties.get(SUFFIX, '')}"


def storage_of(project: Project, pipeline: Pipeline) -> str:
    """Location of a pipeline's orders: beside its ledger's metadata; without tables, in the state folder of this machine."""
    from frazil.iceberg.catalog.table import metadata_path

    ledger = project.lake(pipeline.home_catalog).find_table(pipeline.ledger_table)
    if ledger is None:
        return local_storage(project.home)
    return metadata_path(ledger, "order").rpartition("/")[0]


def local_storage(home: Home) -> str:
    """A folder of this machine, for jobs that have no table: captures, probes, and dry runs before the first run."""
    return str(private_folder(home.root / "plans"))
