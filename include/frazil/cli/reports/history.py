"""`frazil history`: the batches of a pipeline, and the files that they wrote."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.batch.schema_change import listed
from frazil.cli.output import console
from frazil.cli.output.console import Json, PipelineName

if TYPE_CHECKING:
    from rich.table import Table

    from frazil.pipeline.models.pipeline_file import Pipeline
    from frazil.project import Project
    from frazil.report.history import BatchHistory, FileHistory, OffsetRange, Removed, Span

_MOST_RANGES = 12
"""Ranges of one removal that are shown; --json has all."""

_WIDE = 110
"""Columns of a terminal from which the table also shows kind and offsets."""


def history(
    pipeline: PipelineName,
    *,
    files: Annotated[bool, typer.Option("--files", help="Show data files instead of batches.")] = False,
    phases: Annotated[
        bool, typer.Option("--phases", help="Also show the seconds that each phase of a batch took.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the batches of a pipeline: snapshot, rows, offsets and duration of each, and the dead letters by reason.

    Below the table: who started each batch, the reason of a replay or reset, and what was skipped or removed.
    --files shows the destinations' current files instead: Kafka offsets, snapshot, rows and batches, from their statistics.
    """
    from frazil.project import Project

    project = Project.load()
    chosen = project.pipeline(pipeline)
    if files:
        _show_files(project, chosen, as_json=as_json)
    else:
        _show_batches(project, chosen, phases=phases, as_json=as_json)


def _show_batches(project: "Project", pipeline: "Pipeline", *, phases: bool, as_json: bool) -> None:
    from frazil.report import history as report

    batches = report.history(project, pipeline)
    if as_json:
        console.print_json(batches)
        return
    if not batches:
        console.say(f"{pipeline.name}: no batch yet")
        return
    print_batches(batches, phases=phases)
    for code, count in report.dead_letter_counts(project, pipeline).items():
        console.say(f"dead letters {code}: {count:,}")


def print_batches(batches: "Sequence[BatchHistory]", *, phases: bool = False) -> None:
    """Print batches as a table, and below it their details. Nothing is cut."""
    out = console.out()
    is_wide = out.width >= _WIDE
    out.print(_table(batches, is_wide=is_wide))
    details = [(batch, list(_details(batch, phases=phases, is_wide=is_wide))) for batch in batches]
    if any(lines for _, lines in details):
        out.print(_details_table(details))


def _table(batches: "Sequence[BatchHistory]", *, is_wide: bool) -> "Table":
    table = console.new_table(is_tight=True)
    for name in ("n", "committed", "snapshot", "read", "rows", "dead", "filtered", "seconds"):
        table.add_column(name, justify="left" if name == "committed" else "right", no_wrap=True)
    if is_wide:
        table.add_column("kind", no_wrap=True)
        table.add_column("offsets from..next", overflow="fold")
    for batch in batches:
        counts = [f"{count:,}" for count in (batch.read, batch.written, batch.dead, batch.filtered)]
        row = [str(batch.n), f"{batch.committed_at:%m-%d %H:%M:%S}", str(batch.snapshot_id or ""), *counts]
        table.add_row(*row, f"{batch.seconds:.1f}", *([batch.kind, " ".join(_offsets(batch))] if is_wide else []))
    return table


def _details_table(details: "Sequence[tuple[BatchHistory, list[str]]]") -> "Table":
    table = console.new_table(is_tight=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("kind", no_wrap=True)
    table.add_column("details", overflow="fold")
    for batch, lines in details:
        for number, line in enumerate(lines):
            table.add_row("" if number else str(batch.n), "" if number else batch.kind, line)
    return table


def _skips(batch: "BatchHistory") -> Iterator[str]:
    ranges = " ".join(map(_range, batch.skipped))
    if batch.lost_from is not None:
        yield f"lost at most, of batches {batch.lost_from} to {batch.n - 1}: {ranges or 'nothing'}"
    elif ranges:
        yield f"skipped, deleted by retention: {ranges}"


def _details(batch: "BatchHistory", *, phases: bool, is_wide: bool) -> Iterator[str]:
    if not is_wide and (offsets := _offsets(batch)):
        yield f"offsets {' '.join(offsets)}"
    if batch.started_by:
        yield f"started by {batch.started_by}"
    if batch.reason:
        yield f"reason: {batch.reason}"
    yield from _skips(batch)
    if batch.unknown_fields and (left_out := batch.unknown_fields.summary):
        yield left_out
    for table, counts in batch.changes.items():
        yield f"merged into {table}: {counts.summary}"
    for table, changes in batch.schema_changes.items():
        yield f"changed {table}: {listed(changes)}"
    yield from _removals(batch.removed)
    if phases and batch.phases:
        yield "seconds: " + ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in batch.phases.items())
    for table, snapshot in batch.snapshots.items() if phases else ():
        yield f"snapshot {snapshot} of {table}"


def _offsets(batch: "BatchHistory") -> list[str]:
    """`partition:from..next` of every partition in which the position moved, with the topic's name if there are several."""
    several = len(batch.position) > 1
    return [
        f"{topic}/{number}:{begin}..{end}" if several else f"{number}:{begin}..{end}"
        for topic, offsets in batch.position.items()
        for number, (begin, end) in enumerate(zip(offsets["from"], offsets["next"], strict=True))
        if begin < end or batch.kind not in ("ingest", "replay")
    ] or [
        _range(offset_range) if several else _range(offset_range).rpartition("/")[2]
        for offset_range in batch.ranges or ()
    ]


def _range(offsets: "OffsetRange") -> str:
    topic, partition, start, end = offsets
    return f"{topic}/{partition}:{start}..{end}"


def _removals(removed: "Sequence[Removed]") -> Iterator[str]:
    """What a batch removed: tables with the same ranges share a line."""
    by_table: dict[str, list[str]] = {}
    for removal in removed:
        by_table.setdefault(removal.table, []).append(_removed(removal))
    tables_of: dict[tuple[str, ...], list[str]] = {}
    for table, ranges in by_table.items():
        tables_of.setdefault(tuple(ranges), []).append(table)
    for removed_ranges, tables in tables_of.items():
        more = f" and {len(removed_ranges) - _MOST_RANGES} more ranges" if len(removed_ranges) > _MOST_RANGES else ""
        yield f"removed from {' and '.join(tables)}: {' '.join(removed_ranges[:_MOST_RANGES])}{more}"


def _removed(removed: "Removed") -> str:
    partition = "*" if removed.partition is None else removed.partition
    end = "" if removed.end is None else removed.end
    since = f" (of batch {removed.since} or later)" if removed.since else ""
    return f"{removed.topic}/{partition}:{removed.start}..{end}{since}"


def _show_files(project: "Project", pipeline: "Pipeline", *, as_json: bool) -> None:
    from rich.filesize import decimal

    from frazil.report.history import files as report

    files_read = report(project, pipeline)
    if as_json:
        console.print_json(files_read)
        return
    for table in dict.fromkeys(file.table for file in files_read):
        print_files(table, [file for file in files_read if file.table == table])
    rows, size = sum(file.rows for file in files_read if file.content == "data"), sum(file.bytes for file in files_read)
    console.say(f"{pipeline.name}: {len(files_read):,} files, {rows:,} rows, {decimal(size)}")


def print_files(name: str, files: "Sequence[FileHistory]") -> None:
    """Print the files of a destination as a table, and below it their names by number."""
    from os.path import commonprefix

    from rich.filesize import decimal

    # Not `commonpath`, which makes file:/ out of file:///.
    folder = commonprefix([file.path for file in files]).rpartition("/")[0]  # noqa: RUF071
    console.headline(name)
    columns = ("file", "batch", "snapshot", "partition", "offsets", "rows", "size")
    table = console.new_table(numbers=columns, is_tight=True)
    for number, file in enumerate(files, 1):
        offsets = f"{file.offsets[0]}..{file.offsets[1]}" if file.offsets else ""
        where = (_span(file.batches), str(file.snapshot_id or ""), _span(file.partitions), offsets)
        table.add_row(str(number), *where, f"{file.rows:,}", decimal(file.bytes))
    console.show_table(table)
    console.say(f"in {folder}")
    for number, file in enumerate(files, 1):
        name = f"{number:>4} {file.path.removeprefix(f'{folder}/')}"
        remarks = " ".join([*([] if file.content == "data" else [file.content]), *file.topics])
        fits = len(f"{name} {remarks}") <= console.out().width
        console.say(f"{name} {remarks}".rstrip() if fits else f"{name}\n     {remarks}")


def _span(span: "Span | None") -> str:
    """A range with both ends, such as `3-5`; `3` if they are the same."""
    if span is None:
        return ""
    lowest, highest = span
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"
