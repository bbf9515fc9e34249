"""Watches a pipeline's unread records in Airflow's triggerer, and starts a run when there are enough."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from functools import lru_cache
from time import time
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from frazil.batch.plan import Backlog, Threshold, TriggeredRun
from frazil.errors import FrazilError

if TYPE_CHECKING:
    from frazil.monitor.watch import ProjectFiles
    from frazil.report.lag import LagWatch

LONGEST_PAUSE = 300.0
"""Seconds between two polls while Kafka or the catalog fails, at most."""

CALL = "call"
"""Key of the last call in the asset's state store: a restarted triggerer must not start the same run again."""

_log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def _shared_project_files(connections: frozenset[tuple[str, str]]) -> ProjectFiles:
    """The project that all triggers of this process share, so that hundreds of them use the same connections to catalogs.

    `connections`: environment variables with fields of Airflow connections.
    """
    from frazil.monitor.watch import ProjectFiles

    return ProjectFiles(os.environ | dict(connections))


class LagTrigger(BaseEventTrigger):
    """Starts a run of a pipeline when enough records or bytes wait in Kafka and no run is about to read them.

    Airflow stores its arguments, which are only the pipeline and the thresholds. Addresses and secrets come from the settings
    of the triggerer, which are read again when a project file changes. After a failure it polls again, with growing pauses.
    """

    def __init__(self, pipeline: str, dag_id: str, records: int | None, size: int | None, every: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline, self.dag_id, self.records, self.size, self.every = pipeline, dag_id, records, size, every
        self._files: ProjectFiles | None = None
        self._watch: LagWatch | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments, which Airflow stores in its database."""
        arguments = ("pipeline", "dag_id", "records", "size", "every")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in arguments}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll forever, and yield an event to start a run. Blocking calls run in threads."""
        failures = 0
        while True:
            try:
                waiting = await self._poll()
                failures = 0
            except (FrazilError, AirflowRuntimeError) as error:
                self._files = self._watch = None  # a password may have been changed
                failures += 1
                _log.warning("pipeline %s: the lag is unknown now: %s", self.pipeline, error)
                waiting = None
            if waiting is not None:
                yield TriggerEvent({"pipeline": self.pipeline, "records": waiting.records, "bytes": waiting.bytes})  # type: ignore[no-untyped-call]
            await asyncio.sleep(min(self.every * 2 ** min(failures, 10), max(LONGEST_PAUSE, self.every)))

    async def _poll(self) -> Backlog | None:
        """Return what waits, if a run is to start for it; the call is then stored."""
        if self._files is None:
            from frazil_airflow.project.secrets import connection_environment

            # In asgiref's thread, the only one in which Airflow can read connections.
            self._files = _shared_project_files(frozenset((await sync_to_async(connection_environment)()).items()))
        waiting = await asyncio.to_thread(self._enough, self._files)
        if waiting is None or waiting.epoch is None:
            return None
        last, now = await self._last_call(), time()
        if last is not None and last.is_open(waiting, now):
            return None
        if await asyncio.to_thread(self._count_current_runs):  # they may read all that waits
            return None
        # Again, since a run that ended meanwhile may have read it.
        waiting = await asyncio.to_thread(self._enough, self._files)
        if waiting is None or waiting.epoch is None:
            return None
        # Stored before the event: a lost event only delays the run, a repeated one would start Spark for nothing.
        await self._store.aset(CALL, TriggeredRun(waiting.epoch, waiting.ends, now).to_json())
        return waiting

    def _enough(self, files: ProjectFiles) -> Backlog | None:
        # Imported in a thread: loading the clients of Kafka and Iceberg takes seconds, and other triggers must not wait.
        from frazil.report.lag import LagWatch

        project = files.project()
        if self._watch is None or self._watch.project is not project:
            self._watch = LagWatch(project, project.pipeline(self.pipeline))
        threshold = Threshold(self.records, self.size)
        waiting = self._watch.measure(threshold)
        return waiting if waiting.reaches(threshold) else None

    def _count_current_runs(self) -> int:
        # Imported in a thread, too: with it come the models of pipeline files.
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        from frazil_airflow.project.run_request import CURRENT_STATES

        return RuntimeTaskInstance.get_dr_count(self.dag_id, states=list(CURRENT_STATES))

    async def _last_call(self) -> TriggeredRun | None:
        stored = await self._store.aget(CALL)
        try:
            return TriggeredRun.from_json(stored) if isinstance(stored, dict) else None
        except (KeyError, TypeError, ValueError):  # written by another version: the next call replaces it
            return None

    @property
    def _store(self) -> Any:
        if self.asset_state_store is None:
            raise RuntimeError("Airflow gave the trigger no state store of its asset")
        return self.asset_state_store
