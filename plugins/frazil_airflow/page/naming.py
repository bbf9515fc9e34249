"""Which DAGs belong to a pipeline."""

from __future__ import annotations

import re

_PREFIXES = ("ingest__", "maintain__", "dead_letters__", "replay_dead_letters__")

LETTERS_KIND = "dead_letters"
"""Kind of the batches that it makes."""

_CLEARED = re.compile(r"#\d+$")


def ingest_of(pipeline: str) -> str:
    """Id of the DAG that ingests."""
    return f"ingest__{pipeline}"


def maintain_of(pipeline: str) -> str:
    """Id of the DAG that keeps its tables in shape."""
    return f"maintain__{pipeline}"


def letters_of(pipeline: str) -> str:
    """Id of the DAG that reports its dead letters."""
    return f"dead_letters__{pipeline}"


def replay_letters_of(pipeline: str) -> str:
    """Id of the DAG that lands its dead letters."""
    return f"replay_dead_letters__{pipeline}"


def run_of(pipeline: str, kind: str, run: str) -> tuple[str, str]:
    """The DAG and the run in Airflow that made a batch, by its kind and the run that its ledger names.

    The ledger's name of a run is unique in its pipeline: a replay of letters has its DAG before it, and a run that replays
    again after it was cleared has `#` and how often.
    """
    if kind == LETTERS_KIND:
        dag_id, _, run_id = run.partition(":")
        return dag_id, run_id
    return ingest_of(pipeline), _CLEARED.sub("", run)


def pipeline_of(dag_id: str) -> str | None:
    """The pipeline that a DAG belongs to, by its id; None if it is of no one pipeline."""
    return next((dag_id.removeprefix(prefix) for prefix in _PREFIXES if dag_id.startswith(prefix)), None)
