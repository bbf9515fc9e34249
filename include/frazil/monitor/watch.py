"""Reads the conditions of all pipelines and captures in the background, again and again, for processes that run for weeks. Follows
edited files, and reads the runs of their DAGs from Airflow's API.
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
# Without a configured log, no line disturbs the screen of `frazil status --watch`.
_LOG.addHandler(logging.NullHandler())

THREADS: Final = 4
"""Pipelines that are read at the same time. Reading is mostly waiting for brokers and storages."""

REFRESH_SECONDS: Final = 15.0
"""Seconds from the begin of one round over all pipelines to the next; more if a round takes longer."""

HEALTH_SECONDS: Final = 600.0
"""Seconds from one reading of table health to the next. It reads all manifests."""

HEALTH_AGAIN_SECONDS: Final = 60.0
"""The same after tables could not be read."""

RunsOf = Callable[[Iterable[str]], Mapping[str, Runs]]
"""Reads Airflow's runs of pipelines and captures by unique name, without those that Airflow does not know."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The last reading of a pipeline or capture.

    Attributes:
        series: What it landed; from an earlier reading if the ledger can't be read now.
        read_at: When it was read, by the monotonic clock.
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
        load: Loads the project as it is now, at each round.
        names: Unique names of pipelines and captures to watch; all if empty.
        runs_of: Reads Airflow's runs.
        refresh_seconds: Seconds from one round to the next.
        threads: Number of pipelines that are read at the same time.
        idle_seconds: Seconds without requests after which reading pauses until the next request.
    """

    def __init__(
        self,
        load: Callable[[], Project],
        names: Iterable[str] = (),
        runs_of: RunsOf = _no_runs,
        refresh_seconds: float = REFRESH_SECONDS,
        *,
        threads: int = THREADS,
        idle_seconds: float = math.inf,
    ) -> None:
        self.ledgers = Ledgers()
        self._load, self._names, self._runs_of = load, frozenset(names), runs_of
        self._refresh_seconds, self._idle_seconds = refresh_seconds, idle_seconds
        self._readings: dict[str, Reading | None] = {}
        self._objectives: dict[str, float | None] = {}
        self._health: dict[str, tuple[Mapping[str, int], float]] = {}
        self._lock, self._closed, self._round_done = Lock(), Event(), Event()
        self._requested, self._requested_at = Event(), time.monotonic()
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
        with self._lock:  # so that no round submits reads after it
            self._closed.set()
        self._requested.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def snapshot(self) -> Mapping[str, Condition | None]:
        """The condition of every pipeline by name; None before its first reading. Never waits."""
        return {name: None if reading is None else reading.condition for name, reading in self.readings().items()}

    def readings(self) -> Mapping[str, Reading | None]:
        """The last reading of every pipeline by name, with landed records and ages."""
        self._note_request()
        with self._lock:
            return dict(sorted(self._readings.items()))

    def reading(self, name: str) -> Reading | None:
        """The last reading of one pipeline; None before the first. Never waits."""
        self._note_request()
        with self._lock:
            return self._readings.get(name)

    def objectives(self) -> Mapping[str, float | None]:
        """Freshness objectives by name: seconds that a record may wait."""
        with self._lock:
            return dict(self._objectives)

    def wait(self, seconds: float) -> bool:
        """Wait until a round ends, and return whether one did since the last call or within this time."""
        is_done = self._round_done.wait(seconds)
        self._round_done.clear()
        return is_done

    def _note_request(self) -> None:
        self._requested_at = time.monotonic()
        self._requested.set()
        with self._lock:  # an unexpected error may have ended the thread: then start another one
            if self._thread is not None and not self._thread.is_alive() and not self._closed.is_set():
                self.start()

    def _run(self) -> None:
        project: Project | None = None
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                project = self._load()
                self._round(project)
            except FrazilError as problem:  # somebody edits the settings now: the last readings stay
                _LOG.warning("the project can't be read: %s", problem)
            self._round_done.set()
            seconds_left = self._refresh_seconds - (time.monotonic() - began)
            self._closed.wait(max(0.0, seconds_left) if math.isfinite(seconds_left) else None)
            self._rest(project)

    def _rest(self, project: Project | None) -> None:
        """After `idle_seconds` without requests, close the catalogs and wait for the next request."""
        self._requested.clear()  # before the check of the clock, so that a request in between ends the wait
        if not self._closed.is_set() and time.monotonic() - self._requested_at >= self._idle_seconds:
            if project is not None:
                project.close()
            self._requested.wait()

    def _round(self, project: Project) -> None:
        """Read every pipeline and capture once."""
        flows = {name: flow for name, flow in project.flows().items() if not self._names or name in self._names}
        with self._lock:
            self._readings = {name: self._readings.get(name) for name in flows}
            self._objectives = {name: freshness_objective(flow, utc_now()) for name, flow in flows.items()}
            if self._closed.is_set():
                return
            runs = self._pool.submit(self._runs_of, tuple(flows))
            reads = {name: self._pool.submit(self._read, project, flow, runs) for name, flow in flows.items()}
        for name, read_future in reads.items():
            try:
                failure = read_future.exception()
            except CancelledError:  # the watch was closed
                continue
            if failure is not None:  # an unexpected error must not stop the reading of others
                _LOG.error("reading the state of pipeline %s failed", name, exc_info=failure)

    def _read(self, project: Project, flow: Flow, runs: Future[Mapping[str, Runs]]) -> None:
        if isinstance(flow, Pipeline):
            self._read_pipeline(project, flow, runs)
        else:
            runs_of_capture = runs.result().get(flow.unique_name, Runs())
            self._note(read_capture(project, flow, runs=runs_of_capture), Series())

    def _read_pipeline(self, project: Project, pipeline: Pipeline, runs: Future[Mapping[str, Runs]]) -> None:
        name = pipeline.name
        with self._lock:
            before = self._readings.get(name)
        condition = read(project, pipeline, ledgers=self.ledgers)
        # Created tables stay, so the last known ones hold while they can't be read.
        auto_created = condition.auto_created or (before.condition.auto_created if before is not None else ())
        scores, due = self._health.get(name, ({}, -math.inf))
        condition = replace(condition, runs=runs.result().get(name, Runs()), health=scores, auto_created=auto_created)
        series = self._series(project, pipeline, condition, before)
        is_due = condition.n is not None and time.monotonic() >= due
        if before is None or not is_due:  # the first reading is available before the health is read
            self._note(condition, series)
        if is_due:
            self._note(replace(condition, health=self._scores(project, pipeline, scores)), series)

    def _series(self, project: Project, pipeline: Pipeline, condition: Condition, before: Reading | None) -> Series:
        """What the pipeline landed; the previous series if the ledger can't be read."""
        try:
            return last_day(self.ledgers.load(project, pipeline), condition.read_at)
        except FrazilError as problem:  # the condition has the same error
            _LOG.info("ledger of pipeline %s: %s", pipeline.name, problem)
        return before.series if before is not None else Series()

    def _scores(self, project: Project, pipeline: Pipeline, previous: Mapping[str, int]) -> Mapping[str, int]:
        """Read the health of the tables; the previous scores if they can't be read now."""
        scores = previous
        try:
            scores, pause = table_health(project, pipeline), HEALTH_SECONDS
        except FrazilError as problem:  # the condition has the same error
            _LOG.info("health of the tables of pipeline %s: %s", pipeline.name, problem)
            pause = HEALTH_AGAIN_SECONDS
        self._health[pipeline.name] = scores, time.monotonic() + pause
        return scores

    def _note(self, condition: Condition, series: Series) -> None:
        with self._lock:
            if condition.pipeline in self._readings:
                self._readings[condition.pipeline] = Reading(condition, series, time.monotonic())


CHECK_SECONDS: Final = 1.0
"""Seconds from one check for changed files to the next. One page asks for the project once per pipeline."""

_Stamp = tuple[tuple[str, int, int], ...]
"""Path, time of change and size of each file."""


class ProjectFiles:
    """Reads the project, and reloads it only when one of its files changed: until then its catalogs stay open."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._lock = Lock()
        self._loaded: tuple[_Stamp, Project] | None = None
        self._project_stamp: _Stamp = ()
        self._secret_files: tuple[Path, ...] = ()
        self._checked_at = 0.0

    def project(self) -> Project:
        """The present settings and pipelines; while the files are broken, the last valid ones.

        Raises:
            ConfigError: They were broken at the first read.
            Retryable: They could not be read at the first read.
        """
        with self._lock:
            now = time.monotonic()
            if self._loaded is None or now - self._checked_at >= CHECK_SECONDS:
                stamp = self._stamp()
                if self._loaded is None or self._loaded[0] != stamp:
                    self._loaded = stamp, self._load()
                self._checked_at = now
            return self._loaded[1]

    def take(self, env: Mapping[str, str]) -> None:
        """Replace the environment variables that name the files and resolve references, from the next read on."""
        with self._lock:
            if env != self._env:
                self._env, self._project_stamp, self._checked_at = env, (), -math.inf
                self._loaded = ((), self._loaded[1]) if self._loaded is not None else None

    def look_again(self) -> None:
        """Make the next read check for changed files, however recent the last check: this process just wrote one."""
        with self._lock:
            self._checked_at = -math.inf

    def _stamp(self) -> _Stamp:
        try:
            places = Places.resolve(self._env)
            schema_files = sorted((places.pipelines_folder.parent / SCHEMAS).rglob("*"))
            project_stamp = _stamp([*_yaml_files(places), *schema_files])
            if project_stamp != self._project_stamp:
                self._project_stamp, self._secret_files = project_stamp, _secret_files(places)
            return project_stamp + _stamp(self._secret_files, absent=OSError)  # loading reports unreadable ones
        except OSError as problem:  # such as a folder that is deleted, or a share that is not mounted
            if self._loaded is None:
                raise BAD_FILE.retryable(
                    f"the files of the project can't be read: {problem}",
                    next_step="check that its folders exist and can be read",
                ) from problem
            _LOG.warning("the files can't be read; the project as loaded before stays in force: %s", problem)
            return self._loaded[0]

    def _load(self) -> Project:
        if self._loaded is None:
            return _load_all(self._env)
        before = self._loaded[1]
        try:
            project = _load_all(self._env)
        except FrazilError as problem:
            # Only logged: `frazil validate` tells it to the person who edits the file.
            _LOG.warning("the files are broken; the project as loaded before stays in force: %s", problem)
            return before
        before.close()
        return project


def _load_all(env: Mapping[str, str]) -> Project:
    """Load the project with all pipeline files at once, so that later edits do not change a project in use."""
    project = Project.load(env)
    _ = project.pipelines.usable
    return project


def _yaml_files(places: Places) -> list[Path]:
    """Settings, pipeline and capture files, which may have references."""
    folders = (places.pipelines_folder, places.captures_folder)
    return [places.settings_file, *(file for folder in folders for file in sorted(folder.glob("*.y*ml")))]


def _secret_files(places: Places) -> tuple[Path, ...]:
    """Files with secrets that settings, pipelines and captures refer to."""
    referenced: set[Path] = set()
    for file in _yaml_files(places):
        folder = None if file == places.settings_file else file.parent
        with suppress(ConfigError):  # loading reports it
            referenced.update(referenced_files(read_yaml(file, folder)))
    return tuple(sorted(referenced))


def _stamp(files: Iterable[Path], absent: type[OSError] = FileNotFoundError) -> _Stamp:
    """A stamp that changes when one of the files does. Files whose status raises `absent` are left out."""
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
"""Runs of a DAG that are read. More failures in a row are counted as so many."""

_PAGE: Final = 500
"""Runs of many DAGs that one request reads: about a megabyte."""

_PAGES: Final = 8
"""Requests, at most. DAGs that run often fill the first page; the next requests leave them out, for those that run rarely."""


def runs_of(pipelines: Iterable[str], home: Home) -> Mapping[str, Runs]:
    """Airflow's runs of pipelines and captures, from FRAZIL_AIRFLOW_URL or else the embedded Airflow; empty without an answer."""
    try:
        with any_api(home) as airflow:
            return fetch_runs(airflow, pipelines)
    except FrazilError:  # pipelines also work without an Airflow
        return {}


def fetch_runs(airflow: AirflowApi, pipelines: Iterable[str]) -> Mapping[str, Runs]:
    """Airflow's runs of pipelines and captures by unique name, in a few requests. Pipelines without a DAG are left out, and those
    that the limit of requests does not reach.

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
    """The last runs of each DAG, the newest first, enough to know its state. DAGs that the limit of requests does not reach
    are left out.
    """
    runs: dict[str, list[DagRun]] = {dag_id: [] for dag_id in dag_ids}
    remaining, start = set(runs), 0
    for _ in range(_PAGES):
        count = min(_PAGE, _LAST * len(remaining))
        page = airflow.newest_runs(remaining, count, start)
        if start == 0:  # a first page of fewer DAGs has the runs read before, and earlier ones
            runs |= {dag_id: [] for dag_id in remaining}
        for run in page:
            # A run that began meanwhile moves the others on, so that a page repeats some of the page before.
            if all(run.run_id != earlier.run_id for earlier in runs[run.dag_id]):
                runs[run.dag_id].append(run)
        if len(page) < count:
            return runs
        fewer = {dag_id for dag_id in remaining if not _is_enough(runs[dag_id])}
        if fewer == remaining:  # read DAGs without a finished run first
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
