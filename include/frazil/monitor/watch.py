"""The conditions of all pipelines and captures, refreshed in the background, for processes that run for weeks: readers
get the last one at once, and edited files and Airflow's runs are followed.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Self

from frazil.error_codes import BAD_FILE
from frazil.errors import FrazilError
from frazil.monitor.batches import Ledgers, Series, last_day
from frazil.monitor.condition import Condition, Runs
from frazil.monitor.freshness import freshness_objective
from frazil.monitor.reading import read, read_capture, table_health
from frazil.pipeline.files.files import referenced_files
from frazil.pipeline.files.load import SCHEMAS, ConfigError, read_yaml
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Flow, dag_of
from frazil.project import Places, Project
from frazil.run.state.context import utc_now
from frazil.runtime.airflow_login import any_api
from frazil.runtime.home import Home

if TYPE_CHECKING:
    from frazil.runtime.airflow_api import AirflowApi, DagRun


_LOG: Final = logging.getLogger(__name__)
# Where nobody asked for logs, nothing is drawn over a screen; each condition says what is wrong.
_LOG.addHandler(logging.NullHandler())

THREADS: Final = 4
"""Mostly they wait for brokers and storages."""

REFRESH_SECONDS: Final = 15.0
"""From one look at a pipeline to the next; longer where looks take longer."""

HEALTH_SECONDS: Final = 600.0
"""From one look at the health of a pipeline's tables to the next: it reads all their manifests."""

HEALTH_AGAIN_SECONDS: Final = 60.0
"""From a look at the health of tables that can't be read to the next."""

RunsOf = Callable[[Iterable[str]], Mapping[str, Runs]]
"""What Airflow knows of pipelines, by their names; those that it does not know are left out."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The last condition read of a pipeline, and when, by the monotonic clock.

    Attributes:
        condition: Its condition.
        series: What it landed; the previous reading if the ledger can't be read now.
        read_at: When that was.
    """

    condition: Condition
    series: Series
    read_at: float


def _no_runs(_: Iterable[str]) -> Mapping[str, Runs]:
    return {}


class Watch:
    """Reads the conditions of pipelines and captures again and again, a few at a time. Use it as a context manager, or close it.

    If a pipeline can't be read, its condition says why, and the others are still read.

    Args:
        load: The project as it is now, so that files that come and go are followed.
        names: Keys of pipelines and captures to watch; all if left out.
        runs_of: Reads Airflow's runs of pipelines.
        refresh_seconds: From one reading of a pipeline to the next.
        threads: How many pipelines are read at the same time.
        forsaken_seconds: After so long without requests, reading pauses until the next request.
    """

    def __init__(
        self,
        load: Callable[[], Project],
        names: Iterable[str] = (),
        runs_of: RunsOf = _no_runs,
        refresh_seconds: float = REFRESH_SECONDS,
        *,
        threads: int = THREADS,
        forsaken_seconds: float = math.inf,
    ) -> None:
        self.ledgers = Ledgers()
        self._load, self._names, self._runs_of = load, frozenset(names), runs_of
        self._refresh_seconds, self._forsaken_seconds = refresh_seconds, forsaken_seconds
        self._seen: dict[str, Reading | None] = {}
        self._promises: dict[str, float | None] = {}
        self._health: dict[str, tuple[Mapping[str, int], float]] = {}
        self._lock, self._closed, self._round_done = Lock(), Event(), Event()
        self._asked, self._asked_at = Event(), time.monotonic()
        self._pool = ThreadPoolExecutor(threads, "frazil-watch")
        self._thread: Thread | None = None

    def start(self) -> Self:
        """Start watching."""
        self._thread = Thread(target=self._run, name="frazil-watch", daemon=True)
        self._thread.start()
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching, without waiting for a read in progress."""
        with self._lock:  # nothing is begun after it
            self._closed.set()
        self._asked.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def snapshot(self) -> Mapping[str, Condition | None]:
        """The condition of every pipeline by name; None before its first reading. Never waits."""
        return {name: None if reading is None else reading.condition for name, reading in self.readings().items()}

    def readings(self) -> Mapping[str, Reading | None]:
        """The last reading of every pipeline by name, with landed records and ages."""
        self._note_asked()
        with self._lock:
            return dict(sorted(self._seen.items()))

    def reading(self, name: str) -> Reading | None:
        """The last reading of one pipeline; None before the first. Never waits."""
        self._note_asked()
        with self._lock:
            return self._seen.get(name)

    def promises(self) -> Mapping[str, float | None]:
        """How many seconds a record of each pipeline may wait, by name."""
        with self._lock:
            return dict(self._promises)

    def wait(self, seconds: float) -> bool:
        """Whether a round over all pipelines ended since the last call, or ends within this time."""
        is_done = self._round_done.wait(seconds)
        self._round_done.clear()
        return is_done

    def _note_asked(self) -> None:
        self._asked_at = time.monotonic()
        self._asked.set()
        with self._lock:  # a fault of ours ended it: whoever asks has it look again
            if self._thread is not None and not self._thread.is_alive() and not self._closed.is_set():
                self.start()

    def _run(self) -> None:
        project: Project | None = None
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                project = self._load()
                self._round(project)
            except FrazilError as problem:  # a settings file that somebody edits now: what is known stays, and ages
                _LOG.warning("the project can't be read: %s", problem)
            self._round_done.set()
            seconds_left = self._refresh_seconds - (time.monotonic() - began)
            self._closed.wait(max(0.0, seconds_left) if math.isfinite(seconds_left) else None)
            self._rest(project)

    def _rest(self, project: Project | None) -> None:
        """After a long time without requests, close the catalogs and wait for the next request."""
        self._asked.clear()  # before the look at the clock: a question between them ends the wait
        if not self._closed.is_set() and time.monotonic() - self._asked_at >= self._forsaken_seconds:
            if project is not None:
                project.close()
            self._asked.wait()

    def _round(self, project: Project) -> None:
        """Look at every pipeline once."""
        pipelines = {
            name: pipeline for name, pipeline in project.flows().items() if not self._names or name in self._names
        }
        with self._lock:
            self._seen = {name: self._seen.get(name) for name in pipelines}
            self._promises = {name: freshness_objective(pipeline, utc_now()) for name, pipeline in pipelines.items()}
            if self._closed.is_set():
                return
            runs = self._pool.submit(self._runs_of, tuple(pipelines))
            looks = {
                name: self._pool.submit(self._look, project, pipeline, runs) for name, pipeline in pipelines.items()
            }
        for name, look in looks.items():
            try:
                failure = look.exception()
            except CancelledError:  # closed meanwhile; to wait for all of them would never end
                continue
            if failure is not None:  # a fault of ours: told, and the others go on
                _LOG.error("reading the state of pipeline %s failed", name, exc_info=failure)

    def _look(self, project: Project, flow: Flow, runs: Future[Mapping[str, Runs]]) -> None:
        if isinstance(flow, Pipeline):
            self._look_at_pipeline(project, flow, runs)
        else:
            runs_of_capture = runs.result().get(flow.unique_name, Runs())
            self._note(read_capture(project, flow, runs=runs_of_capture), Series())

    def _look_at_pipeline(self, project: Project, pipeline: Pipeline, runs: Future[Mapping[str, Runs]]) -> None:
        name = pipeline.name
        with self._lock:
            before = self._seen.get(name)
        condition = read(project, pipeline, ledgers=self.ledgers)
        # None is ever unmade: those that were known stay while nobody can tell.
        auto_created = condition.auto_created or (before.condition.auto_created if before is not None else ())
        scores, due = self._health.get(name, ({}, -math.inf))
        condition = replace(condition, runs=runs.result().get(name, Runs()), health=scores, auto_created=auto_created)
        series = self._series(project, pipeline, condition, before)
        is_due = condition.n is not None and time.monotonic() >= due
        if before is None or not is_due:  # whoever waits for the first look need not wait for the health, too
            self._note(condition, series)
        if is_due:
            self._note(replace(condition, health=self._scores(project, pipeline, scores)), series)

    def _series(self, project: Project, pipeline: Pipeline, condition: Condition, before: Reading | None) -> Series:
        """Series of landed records from the ledger alone; the previous series if the ledger can't be read."""
        try:
            return last_day(self.ledgers.load(project, pipeline), condition.read_at)
        except FrazilError as problem:  # the condition says so, too
            _LOG.info("ledger of pipeline %s: %s", pipeline.name, problem)
        return before.series if before is not None else Series()

    def _scores(self, project: Project, pipeline: Pipeline, previous: Mapping[str, int]) -> Mapping[str, int]:
        """Health of the tables, read rarely; the last values if they can't be read now."""
        scores = previous
        try:
            scores, pause = table_health(project, pipeline), HEALTH_SECONDS
        except FrazilError as problem:  # the condition says what can't be read
            _LOG.info("health of the tables of pipeline %s: %s", pipeline.name, problem)
            pause = HEALTH_AGAIN_SECONDS
        self._health[pipeline.name] = scores, time.monotonic() + pause
        return scores

    def _note(self, condition: Condition, series: Series) -> None:
        with self._lock:
            if condition.pipeline in self._seen:
                self._seen[condition.pipeline] = Reading(condition, series, time.monotonic())


_LOG.addHandler(logging.NullHandler())  # nothing is drawn over a screen

LOOK_SECONDS: Final = 1.0
"""From one look for changed files to the next: a page asks for the project once per pipeline."""

_Stamp = tuple[tuple[str, int, int], ...]


class ProjectFiles:
    """Reads the project, and reloads it only when one of its files changed: until then its catalogs stay open."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lock = Lock()
        self._loaded: tuple[_Stamp, Project] | None = None
        self._own: _Stamp = ()
        self._named: tuple[Path, ...] = ()
        self._looked_at = 0.0

    def project(self) -> Project:
        """The present settings and pipelines; while the files are broken, the last valid ones.

        Raises:
            ConfigError: They were broken from the start.
            Retryable: They could not be looked at from the start.
        """
        with self._lock:
            now = time.monotonic()
            if self._loaded is None or now - self._looked_at >= LOOK_SECONDS:
                stamp = self._stamp()
                if self._loaded is None or self._loaded[0] != stamp:
                    self._loaded = stamp, self._load()
                self._looked_at = now
            return self._loaded[1]

    def take(self, env: Mapping[str, str]) -> None:
        """Use other environment variables for the location of the files and for references, from the next read on."""
        with self._lock:
            if env != self._env:
                self._env, self._own, self._looked_at = env, (), -math.inf
                self._loaded = ((), self._loaded[1]) if self._loaded is not None else None

    def look_again(self) -> None:
        """Check for changed files at the next read, however recent the last check: a file that was just written must be read."""
        with self._lock:
            self._looked_at = -math.inf

    def _stamp(self) -> _Stamp:
        try:
            places = Places.resolve(self._env)
            stamp_of_files = _stamp(_files(places))
            if stamp_of_files != self._own:
                self._own, self._named = stamp_of_files, _secret_files(places)
            return stamp_of_files + _stamp(self._named, absent=OSError)  # what else is wrong with them, loading says
        except OSError as problem:  # a folder that vanishes, a share that is away
            if self._loaded is None:
                raise BAD_FILE.retryable(
                    f"the files of the project can't be read: {problem}",
                    next_step="check that its folders exist and can be read",
                ) from problem
            _LOG.warning("the files that were read before stay in force: %s", problem)
            return self._loaded[0]

    def _load(self) -> Project:
        if self._loaded is None:
            return _read(self._env)
        before = self._loaded[1]
        try:
            project = _read(self._env)
        except FrazilError as problem:
            # Of no concern to those who look; whoever edits the file is told by its own check.
            _LOG.warning("the settings that were read before stay in force: %s", problem)
            return before
        before.close()
        return project


def _read(env: Mapping[str, str]) -> Project:
    """Read all files at once: a project in use must not depend on later edits."""
    project = Project.load(env)
    _ = project.pipelines.usable
    return project


def _files(places: Places) -> list[Path]:
    """The files of the project."""
    return [*_written_files(places), *sorted((places.pipelines_folder.parent / SCHEMAS).rglob("*"))]


def _written_files(places: Places) -> list[Path]:
    """Those with references."""
    folders = (places.pipelines_folder, places.captures_folder)
    return [places.settings_file, *(file for folder in folders for file in sorted(folder.glob("*.y*ml")))]


def _secret_files(places: Places) -> tuple[Path, ...]:
    """Files from which settings and pipelines take secrets."""
    referenced: set[Path] = set()
    for file in _written_files(places):
        folder = None if file == places.settings_file else file.parent
        with suppress(ConfigError):  # loading says it
            referenced.update(referenced_files(read_yaml(file, folder)))
    return tuple(sorted(referenced))


def _stamp(files: Iterable[Path], absent: type[OSError] = FileNotFoundError) -> _Stamp:
    """A stamp that changes when one of the files does. Files removed meanwhile are left out."""
    stamps = []
    for file in files:
        try:
            status = file.stat()
        except absent:
            continue
        stamps.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(stamps)


_PREFIXES: Final = ("ingest__", "capture__")

_LAST: Final = 20
"""Runs of a DAG that are looked at: more failures than that in a row are told as so many."""

_PAGE: Final = 500
"""Runs that are asked for at a time, over many DAGs: about a megabyte."""

_PAGES: Final = 8
"""Bounds the requests. DAGs that run often fill the first page; those that run rarely are found on the next, without them."""


def runs_of(pipelines: Iterable[str], home: Home) -> Mapping[str, Runs]:
    """Runs of pipelines in Airflow, at FRAZIL_AIRFLOW_URL or else the embedded one; empty if it does not answer."""
    try:
        with any_api(home) as airflow:
            return fetch_runs(airflow, pipelines)
    except FrazilError:  # there is no Airflow here: that is no trouble of the pipelines
        return {}


def fetch_runs(airflow: AirflowApi, pipelines: Iterable[str]) -> Mapping[str, Runs]:
    """Airflow's runs of pipelines and captures by unique name, in a few requests. Those without a DAG are left out, and
    those beyond the limit of requests.

    Raises:
        Retryable: Airflow does not answer.
        Terminal: Airflow refused the requests.
    """
    dag_ids = {dag_of(key): key for key in pipelines}
    prefixes = [prefix for prefix in _PREFIXES if any(dag_id.startswith(prefix) for dag_id in dag_ids)]
    paused = {dag_id: is_paused for prefix in prefixes for dag_id, is_paused in airflow.paused(prefix).items()}
    pipeline_names = {dag_id: key for dag_id, key in dag_ids.items() if dag_id in paused}
    runs = _newest(airflow, pipeline_names) if pipeline_names else {}
    return {
        name: summarize_runs(runs[dag_id], is_paused=paused[dag_id])
        for dag_id, name in pipeline_names.items()
        if dag_id in runs
    }


def _newest(airflow: AirflowApi, dag_ids: Iterable[str]) -> Mapping[str, Sequence[DagRun]]:
    """The last runs of each DAG, newest first: enough to judge its state. DAGs beyond the limit of requests are left out."""
    runs: dict[str, list[DagRun]] = {dag_id: [] for dag_id in dag_ids}
    remaining, start = set(runs), 0
    for _ in range(_PAGES):
        count = min(_PAGE, _LAST * len(remaining))
        page = airflow.newest_runs(remaining, count, start)
        if start == 0:  # of fewer DAGs, the same page goes back farther
            runs |= {dag_id: [] for dag_id in remaining}
        for run in page:
            if all(
                run.run_id != other_run.run_id for other_run in runs[run.dag_id]
            ):  # a run that began meanwhile moves the others on
                runs[run.dag_id].append(run)
        if len(page) < count:
            return runs
        fewer = {dag_id for dag_id in remaining if not _is_enough(runs[dag_id])}
        if fewer == remaining:  # first those of which nothing can be told yet
            fewer = {dag_id for dag_id in remaining if not _has_finished_run(runs[dag_id])} or remaining
        if not fewer:
            return runs
        remaining, start = fewer, start + count if fewer == remaining else 0
    return {dag_id: newest for dag_id, newest in runs.items() if dag_id not in remaining or _has_finished_run(newest)}


def _has_finished_run(runs: Sequence[DagRun]) -> bool:
    return any(run.has_finished for run in runs)


def _is_enough(runs: Sequence[DagRun]) -> bool:
    return (len(runs) >= _LAST and _has_finished_run(runs)) or any(run.state == "success" for run in runs)


def summarize_runs(runs: Sequence[DagRun], *, is_paused: bool | None = None) -> Runs:
    """Summarize the last runs of a DAG, newest first."""
    finished = [run for run in runs if run.has_finished]
    last = finished[0] if finished else None
    begun = [run.start_date for run in runs if run.state == "running" and run.start_date is not None]
    return Runs(
        is_paused=is_paused,
        running_since=min(begun, default=None),
        last_state=last.state if last else None,
        last_ended_at=last.end_date if last else None,
        last_run=last.run_id if last else None,
        failures=sum(1 for _ in takewhile(lambda run: run.state == "failed", finished)),
    )
