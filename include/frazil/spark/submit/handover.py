"""The order to a job and the job's outcome, as small objects in storage: the process that started the job may die meanwhile, or
run on another machine.

An order lies beside the ledger's metadata, as manifests do, under a name that every attempt of a run finds. It names the attempt
that is valid. An outcome has its attempt in its name, so that a late outcome of an older attempt is never read. The reader of an
outcome removes both files; orphan removal deletes the rest. This module imports no pyspark, and PyIceberg only in functions,
because DAG files import it.
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
"""How often a driver that outlives its submitter writes its heartbeat. An opened folder is used as long, because to open it costs a
request to a REST catalog."""

_LOST_SECONDS: Final = 3 * BEAT_SECONDS
"""Time without a heartbeat from which a driver counts as lost. If it only slept, two drivers work at once, which does no harm."""

_LOOK_SECONDS: Final = 2.0
"""Pause between two checks: of a submitter for the outcome, and of a driver whether its attempt is still valid. A driver whose order
was withdrawn thus ends before the submitter gives up."""

_ATTEMPT: Final = re.compile(r"[0-9a-f]{32}")
"""Form of an attempt. It becomes part of a file's name, and others may write to the folder, so it is checked."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an order: the result of the job, if it has one, or an error."""

    result: str | None = None
    error: FrazilError | None = None

    def to_body(self) -> dict[str, Any]:
        """The form in a file."""
        error = None if self.error is None else json.loads(error_to_json(self.error))
        return {"error": error, "result": self.result}

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Outcome:
        """Read `to_body`."""
        result, error = body["result"], body["error"]
        texts = [result] if error is None else [result, error["next_step"], error["message"] or ""]
        if not all(text is None or isinstance(text, str) for text in texts):
            raise TypeError("expected text")
        return cls(result, None if error is None else error_from_json(json.dumps(error)))


@dataclass(frozen=True, slots=True)
class Handover:
    """One attempt of a run to carry out its order.

    Attributes:
        name: Name of the pipeline, capture or probe.
        location: Folder of the order and its outcome.
        key: Id of the run in file names, the same in every attempt.
        attempt: Random id. Only the outcome of this attempt is read.
    """

    project: Project
    name: str
    location: str
    key: str
    attempt: str

    @classmethod
    def begin(cls, project: Project, location: str, name: str, run: str) -> Self:
        """A new attempt of a run. It takes over from earlier attempts when it hands over its order."""
        key = hashlib.sha256(f"{name}\n{run}".encode()).hexdigest()[:16]
        return cls(project, name, location, key, secrets.token_hex(16))

    @classmethod
    def from_arguments(cls, project: Project, prog: str, argv: list[str]) -> Self:
        """Parse a job's command line, which has `arguments`."""
        parser = argparse.ArgumentParser(prog=prog)
        parser.add_argument("--pipeline", required=True, help="name of the pipeline or capture")
        parser.add_argument("--order", required=True, help="address of the file that says what the job has to do")
        parser.add_argument("--attempt", required=True, help="id of this attempt, as in the order")
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
        """Write the order. This makes earlier attempts of the run invalid.

        With `outlives`, the driver continues when the process that started it has ended.
        """
        body = {"v": HANDOVER_VERSION, "attempt": self.attempt, "outlives": outlives, "order": order}
        _write(self._folder(), self._order_file, json.dumps(body))

    def collect(self, order: str) -> Outcome | None:
        """The result of an earlier attempt at the same order, if nobody has collected it: then the order is carried out.

        It waits while the driver of that attempt is at work. None if that attempt failed, left no result, or had another order,
        because the run was planned again.
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

    def take_result(self, lost: FrazilError, log: str | None = None) -> str | None:
        """The result of this attempt, whose job has ended; None if the job returns none. Order and outcome are removed.

        Args:
            lost: The error to raise if the job left no outcome.
            log: Where people find the log of the job.

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
        """Remove the order. A driver that outlives its submitter then stops in order, within seconds; a queued one does nothing.

        Nothing happens if another attempt took over: the process of a lost task must not stop the driver of the next attempt.
        """
        folder = self._folder()
        if self._is_valid(_read(folder, self._order_file)):
            try:
                _delete(folder, self._order_file)
            except Terminal:  # if the storage forbids it, an order for an attempt that does not exist replaces this one
                _write(folder, self._order_file, json.dumps({"v": HANDOVER_VERSION, "attempt": secrets.token_hex(16)}))

    def read_order(self) -> tuple[str, bool]:
        """The order of the job, and whether its driver outlives its submitter.

        Raises:
            Retryable: This attempt is no longer valid: another one took over, or the order was withdrawn.
        """
        order = _read(self._folder(), self._order_file)
        if order is None or not self._is_valid(order) or not isinstance(order.get("order"), str):
            raise RUN_OVERTAKEN.retryable(
                f"{self.location}/{self._order_file} is not for attempt {self.attempt}"
                f" {'any more' if order is None else 'but for ' + str(order['attempt'])}: it was withdrawn, or another attempt took it over",
                next_step="nothing is lost; the newest attempt continues from the tables",
            )
        return str(order["order"]), bool(order.get("outlives"))

    def write_outcome(self, outcome: Outcome) -> None:
        """Write the outcome of this attempt. An error does not replace a success, which another driver may have left meanwhile."""
        folder = self._folder()
        earlier = self.find(folder) if outcome.error is not None else None
        if earlier is None or earlier.error is not None:
            body = {"v": HANDOVER_VERSION, "attempt": self.attempt, **outcome.to_body()}
            _write(folder, self._outcome_file, json.dumps(body))

    def forget_failure(self) -> None:
        """Remove the error of an earlier driver of this attempt: now another one is at work, and the submitter must wait."""
        # If that is not allowed, or the storage does not answer, the next outcome replaces the error.
        with suppress(Retryable, Terminal):
            folder = self._folder()
            earlier = self.find(folder)
            if earlier is not None and earlier.error is not None:
                _delete(folder, self._outcome_file)

    def await_outcome(self) -> Outcome | None:
        """Wait for the outcome of this attempt while its driver is at work; None if there is neither outcome nor driver."""
        beat, until, folder, due = None, 0.0, self._folder(), time.monotonic() + BEAT_SECONDS
        while True:
            if time.monotonic() >= due:
                folder, due = self._folder(), time.monotonic() + BEAT_SECONDS
            outcome = self.find(folder)
            latest = folder.find(_file_name(folder, self._beat_file)) if outcome is None else None
            if outcome is not None or latest is None:
                return outcome
            if latest != beat:
                beat, until = latest, time.monotonic() + _LOST_SECONDS
            elif time.monotonic() >= until:
                return None
            time.sleep(_LOOK_SECONDS)

    @contextmanager
    def heartbeats(self) -> Iterator[None]:
        """While the block runs, write heartbeats of this attempt, and stop this process once the attempt is no longer valid.

        Raises:
            Retryable: The attempt is not valid when the block begins.
        """
        ended = threading.Event()
        self.read_order()  # raises; a signal would be ignored here in the first process of a container
        folder, due = self._folder(), time.monotonic() + BEAT_SECONDS
        _write(folder, self._beat_file, str(due))

        def beat() -> None:
            nonlocal folder, due
            pause = min(_LOOK_SECONDS, BEAT_SECONDS)
            while not ended.wait(pause):
                with suppress(Retryable, Terminal):  # if the storage does not answer, the next check may succeed
                    is_due = time.monotonic() >= due
                    folder = self._folder() if is_due else folder
                    if not self._is_valid(_read(folder, self._order_file)):
                        os.kill(os.getpid(), signal.SIGTERM)
                        pause = (
                            BEAT_SECONDS  # a second signal soon would kill a run that has ended while its Spark stops
                        )
                    elif is_due:
                        due = time.monotonic() + BEAT_SECONDS
                        _write(folder, self._beat_file, str(due))

        threading.Thread(target=beat, daemon=True, name="handover").start()
        try:
            yield
        finally:
            ended.set()

    def _is_valid(self, order: Mapping[str, Any] | None) -> bool:
        """Whether an order names this attempt."""
        return order is not None and order["attempt"] == self.attempt

    def find(self, folder: Folder) -> Outcome | None:
        """The outcome of this attempt; None if there is none, or the file has another form."""
        body = _read(folder, self._outcome_file)
        try:
            return None if body is None or body["attempt"] != self.attempt else Outcome.from_body(body)
        except (KeyError, TypeError):
            return None

    def remove(self, folder: Folder) -> None:
        """Remove outcome and heartbeat, and also the order unless another attempt took over."""
        for file in (self._outcome_file, self._beat_file):
            with suppress(Retryable, Terminal):  # if that is not allowed, orphan removal deletes them
                _delete(folder, file)
        with suppress(Retryable, Terminal):
            if self._is_valid(_read(folder, self._order_file)):
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
    """The body of an order or an outcome; None without a file, or if it is of another version, half written or foreign."""
    text = folder.find(_file_name(folder, file))
    try:
        body = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or body.get("v") != HANDOVER_VERSION:
        return None
    attempt = body.get("attempt")
    return body if isinstance(attempt, str) and _ATTEMPT.fullmatch(attempt) else None


def _write(folder: Folder, file: str, text: str) -> None:
    folder.write(_file_name(folder, file), text)


def _delete(folder: Folder, file: str) -> None:
    folder.delete(_file_name(folder, file))


def _file_name(folder: Folder, file: str) -> str:
    """The file's name in the storage: that of managed tables may only take names with an ending of Iceberg's files."""
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
