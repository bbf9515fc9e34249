"""Which DAGs belong to a pipeline."""

from __future__ import annotations

_PREFIXES = ("ingest__", "maintain__", "dead_letters__")

REPLAY_LETTERS = "dead_letters__replay"
"""The DAG that lands dead letters of any pipeline."""


def ingest_of(pipeline: str) -> str:
    """Id of the DAG that ingests."""
    return f"ingest__{pipeline}"


def maintain_of(pipeline: str) -> str:
    """Id of the DAG that keeps its tables in shape."""
    return f"maintain__{pipeline}"


def letters_of(pipeline: str) -> str:
    """Id of the DAG that reports its dead letters."""
    return f"dead_letters__{pipeline}"


def pipeline_of(dag_id: str) -> str | None:
    """The pipeline that a DAG belongs to, by its id; None if it is of no one pipeline."""
    if dag_id == REPLAY_LETTERS:
        return None
    return next((dag_id.removeprefix(prefix) for prefix in _PREFIXES if dag_id.startswith(prefix)), None)
