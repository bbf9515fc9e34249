"""Watches the unread records in Kafka, in Airflow's triggerer, and starts a run when there are enough."""

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
    from frazil.report.lag import Watch

LONGEST_PAUSE = 300.0
"""Seconds between two looks while Kafka or the catalog fails, at most."""

AT_WORK = ("queued", "running")
CALL = "call"
"""Key in the asset's state store of the last call, so that a restarted triggerer does not repeat it."""

_log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def _shared_project_files(connections: frozenset[tuple[str, str]]) -> ProjectFiles:
    """The project that all triggers of this process share, so that hundreds of them use the same catalog connections.
    `connections` holds the environment variables that stand for Airflow's connections.
    """
    from frazil.monitor.watch import ProjectFiles

    return ProjectFiles(os.environ | dict(connections))


class LagTrigger(BaseEventTrigger):
    """Starts a run of a pipeline when enough records or bytes wait in Kafka and no run is about to read them.

    Its arguments name the pipeline and the thresholds. Addresses and secrets come from the settings where it runs, and are
    read again when a project file changes. A failure never ends it: it polls again with growing pauses.
    """

    def __init__(self, pipeline: str, dag_id: str, records: int | None, size: int | None, every: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline, self.dag_id, self.records, self.size, self.every = pipeline, dag_id, records, size, every
        self._files: ProjectFiles | None = None
        self._watch: Watch | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what Airflow keeps in its database."""
        made_with = ("pipeline", "dag_id", "records", "size", "every")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in made_with}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll forever; yield an event to start a run. Blocking calls run in threads."""
        failures = 0
        while True:
            try:
                waiting = await self._called()
                failures = 0
            except (FrazilError, AirflowRuntimeError) as error:
                self._files = self._watch = None  # a password may have been changed
                failures += 1
                _log.warning("pipeline %s: the lag is unknown now: %s", self.pipeline, error)
                waiting = None
            if waiting is not None:
                yield TriggerEvent({"pipeline": self.pipeline, "records": waiting.records, "bytes": waiting.bytes})  # type: ignore[no-untyped-call]
            await asyncio.sleep(min(self.every * 2 ** min(failures, 10), max(LONGEST_PAUSE, self.every)))

    async def _called(self) -> Backlog | None:
        """What a run is called for now, if one is."""
        if self._files is None:
            from frazil_airflow.project.secrets import connection_environment

            # In asgiref's own thread: connections are read in no other.
            self._files = _shared_project_files(frozenset((await sync_to_async(connection_environment)()).items()))
        waiting = await asyncio.to_thread(self._enough, self._files)
        if waiting is None or waiting.epoch is None:
            return None
        last, now = await self._last_call(), time()
        if last is not None and last.is_open(waiting, now):
            return None
        # A run that is at work, or about to be, may take all of it; one that ended since the look may have taken it.
        if await asyncio.to_thread(self._at_work):
            return None
        waiting = await asyncio.to_thread(self._enough, self._files)
        if waiting is None or waiting.epoch is None:
            return None
        # On record first: a call that gets lost is made up for by the schedule, one that is repeated starts Spark for nothing.
        await self._note(TriggeredRun(waiting.epoch, waiting.ends, now))
        return waiting

    def _enough(self, files: ProjectFiles) -> Backlog | None:
        # Here, in a thread: loading the clients of Kafka and Iceberg takes seconds, and would hold up all other triggers.
        from frazil.report.lag import Watch

        project = files.project()
        if self._watch is None or self._watch.project is not project:
            self._watch = Watch(project, project.pipeline(self.pipeline))
        threshold = Threshold(self.records, self.size)
        waiting = self._watch.look(threshold)
        return waiting if waiting.reaches(threshold) else None

    def _at_work(self) -> int:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        return RuntimeTaskInstance.get_dr_count(self.dag_id, states=list(AT_WORK))

    async def _last_call(self) -> TriggeredRun | None:
        stored = await self._store.aget(CALL)
        return TriggeredRun.from_json(stored) if isinstance(stored, dict) else None

    async def _note(self, call: TriggeredRun) -> None:
        await self._store.aset(CALL, call.to_json())

    @property
    def _store(self) -> Any:
        if self.asset_state_store is None:
            raise RuntimeError("Airflow gives a trigger that watches an asset its state store")
        return self.asset_state_store
