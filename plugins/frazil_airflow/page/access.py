"""Permissions of the page: which DAGs belong to a pipeline, and Airflow's decision per DAG."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from frazil.pipeline.settings.capture import dag_of
from frazil_airflow.project.pipelines import CAPTURE, INGEST, MAINTAIN, REPLAY, REPORT

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity


LETTERS_KIND = "dead_letters"
"""Kind of batches that replay dead letters."""

_REPLAY_NUMBER = re.compile(r"#\d+$")


def run_of(pipeline: str, kind: str, run: str) -> tuple[str, str]:
    """The id of the DAG, and of its run, that made a batch, from the batch's kind and the run id in the ledger.

    The ledger's run id is unique in its pipeline: that of a replay of dead letters begins with its DAG's id, and that of a
    replay that was cleared ends with `#` and the number of times.
    """
    if kind == LETTERS_KIND:
        dag_id, _, run_id = run.partition(":")
        return dag_id, run_id
    return f"{INGEST}{pipeline}", _REPLAY_NUMBER.sub("", run)


def pipeline_of(dag_id: str) -> str | None:
    """The unique name of the pipeline or capture that a DAG belongs to, from the DAG's id; None if it belongs to none."""
    if dag_id.startswith(CAPTURE):
        return f"capture.{dag_id.removeprefix(CAPTURE)}"
    return next(
        (dag_id.removeprefix(prefix) for prefix in (INGEST, MAINTAIN, REPORT, REPLAY) if dag_id.startswith(prefix)),
        None,
    )


@dataclass(frozen=True)
class AirflowAccess:
    """A user's permissions, from Airflow's auth manager. Each request asks anew, since permissions may be revoked at any time."""

    user: BaseUser

    def readable(self) -> frozenset[str]:
        """Ids of existing DAGs that the user may read."""
        from airflow.api_fastapi.app import get_auth_manager

        return frozenset(get_auth_manager().get_authorized_dag_ids(user=self.user, method="GET"))

    def startable(self, dag_ids: Iterable[str]) -> frozenset[str]:
        """Ids of those DAGs that the user may trigger."""
        from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

        return frozenset(dag_id for dag_id in dag_ids if self._may("POST", DagAccessEntity.RUN, dag_id))

    def may(self, method: ResourceMethod, dag_id: str) -> bool:
        """Whether the user may read, change or delete a DAG, which need not exist yet."""
        return self._may(method, None, dag_id)

    def may_read_logs(self, dag_id: str) -> bool:
        """Whether the user may read the task logs of a DAG, and so the record values in them."""
        from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

        return self._may("GET", DagAccessEntity.TASK_LOGS, dag_id)

    def _may(self, method: ResourceMethod, entity: DagAccessEntity | None, dag_id: str) -> bool:
        from airflow.api_fastapi.app import get_auth_manager
        from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
        from airflow.models.dag import DagModel

        details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
        return get_auth_manager().is_authorized_dag(
            method=method, access_entity=entity, details=details, user=self.user
        )


def visible(access: AirflowAccess, pipelines: Iterable[str]) -> tuple[str, ...]:
    """Unique names of the pipelines and captures whose DAG the user may read, sorted."""
    readable = access.readable()
    return tuple(sorted(name for name in pipelines if dag_of(name) in readable))


def may_see(access: AirflowAccess, pipeline: str) -> bool:
    """Whether the user may read the DAG of a pipeline or a capture, given by unique name."""
    return dag_of(pipeline) in access.readable()
