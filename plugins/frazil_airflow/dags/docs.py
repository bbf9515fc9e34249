"""The page of an ingest DAG: what its pipeline does and where to look, from the pipeline file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from frazil.pipeline.models.destination import TableTemplate
from frazil.pipeline.models.pipeline_file import Column, Pipeline


def doc_md(pipeline: Pipeline) -> str:
    """Return the page as Markdown. The same file gives the same text: a difference would be a new DAG version."""
    return "\n".join([*_head(pipeline), *_columns(pipeline), *_reading(pipeline)])


def _head(pipeline: Pipeline) -> Iterator[str]:
    first = next(iter(pipeline.declared.values()))
    yield f"### {pipeline.name}"
    yield ""
    yield pipeline.description or "No description in the pipeline file."
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| Topics | {_topics(pipeline)} of cluster `{pipeline.source.cluster}` |"
    yield f"| Table{'s' if pipeline.tables[1:] else ''} | {_tables(pipeline)} |"
    yield f"| Partitioned by | {_code(first.partition_by) or 'nothing'} |"
    yield f"| Interval | `{pipeline.interval}` (UTC) |"
    if pipeline.session_for is not None:
        yield f"| A run of the schedule stays for | `{pipeline.session_for}`: `ingest` lands a batch at every interval |"
    yield f"| First run began at | {pipeline.start} |"
    yield f"| Records per batch | at most {pipeline.limits.max_records:,} |"
    yield f"| Engine | `{pipeline.engine}` |"
    yield ""


def _tables(pipeline: Pipeline) -> str:
    """The tables, catalog by catalog."""
    by_catalog: dict[str, list[str]] = {}
    for destination in pipeline.destinations:
        branch = f" on branch `{destination.branch}`" if destination.branch is not None else ""
        by_catalog.setdefault(destination.catalog or pipeline.catalog, []).append(
            f"{_code((destination.table,))}{branch}"
        )
    listed = [f"{', '.join(tables)} in catalog `{catalog}`" for catalog, tables in by_catalog.items()]
    return "; ".join([*listed, *(["those that records name"] if pipeline.create is not None else [])])


def _topics(pipeline: Pipeline) -> str:
    pattern = pipeline.source.topics_pattern
    return _code(pipeline.source.topics) if pattern is None else f"all that match `{pattern}`".replace("|", r"\|")


def _columns(pipeline: Pipeline) -> Iterator[str]:
    for destination in pipeline.declared.values():
        if len(pipeline.declared) > 1 or pipeline.create is not None:
            yield f"Columns of {destination.title if destination is pipeline.create else f'`{destination.title}`'}:"
            yield ""
        yield from _columns_of(destination)


def _columns_of(destination: TableTemplate) -> Iterator[str]:
    yield "| Column | Type | |"
    yield "|---|---|---|"
    for name, column in destination.columns.items():
        yield f"| `{name}` | `{column.type}` | {_remark(column)} |"
    if destination.added_columns:
        yield ""
        yield f"Every row tells where it came from: {_code(destination.added_columns)}."
    yield ""


def _remark(column: Column) -> str:
    words = [*(["required"] if column.required else []), *([column.doc] if column.doc else [])]
    return "; ".join(words).replace("|", r"\|").replace("\n", " ")


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _reading(pipeline: Pipeline) -> Iterator[str]:
    tolerance = pipeline.dead_letters.limits
    dead = pipeline.dead_letters_table
    yield (
        f"Records that can't be decoded or converted are kept whole in `{dead}`. A batch of"
        f" {tolerance.min_records:,} records or more with over {tolerance.max_rate:.0%} of them is not published."
    )
    yield ""
    yield "```"
    yield f"frazil history {pipeline.name}"
    yield f"frazil sql 'SELECT code, count(*) FROM {dead} GROUP BY code'"  # noqa: S608, text to read
    yield f"frazil sql 'SELECT code, message, topic, partition, \"offset\" FROM {dead} LIMIT 20'"  # noqa: S608
    yield "```"
    yield ""
    yield "`plan` fixes what is read, `ingest` lands it, `record` reports it. Nothing new: the last two are skipped."
    yield "Clearing a run, or any other second try, plans again from what the tables say: no record lands twice."
    yield ""
    yield "Started by hand: `ingest` goes on at the position, `replay` lands a range again in place of what it landed"
    yield "before, `dry_run` only counts. A backfill catches up through its intervals; below the position it does nothing,"
    yield 'unless its conf says `{"mode": "replay"}`.'
