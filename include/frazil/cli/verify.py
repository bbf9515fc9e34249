"""`frazil verify`: whether every record of Kafka has its one outcome in the tables."""

from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli import console
from frazil.cli.options import PLACES, Json, PipelineName
from frazil.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from frazil.verify.result import Verification

_SHOWN = 10
"""Differences printed for people; --json prints more."""

_COUNTS = ("covered", "records", "rows", "letters", "filtered", "missing", "duplicate", "unexpected", "changed")


def verify(
    pipeline: PipelineName,
    *,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar=PLACES, help="Where to begin.", show_default="the first offset read"),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar=PLACES, help="Where to end.", show_default="the position"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare every record that Kafka still holds with its row or dead letter, value by value, and the ledger too.

    An independent check: it shares no code with what writes. What it can't work out anew it names, with the reason. Exit code 1
    with the first differences if there are any, and if Kafka holds none of the records any more, so that nothing could be
    compared.
    """
    from frazil.iceberg import variant as _variant  # noqa: F401  # PyIceberg must know the type to open such tables
    from frazil.project import Project
    from frazil.verify.check import verify as check

    project = Project.load()
    found = check(project, project.pipeline(pipeline), from_, to)
    if as_json:
        console.print_json(_report(found))
    else:
        _show(found)
    if not found.is_clean:
        raise typer.Exit(EXIT_FAILED)


def _report(found: "Verification") -> dict[str, object]:
    from dataclasses import asdict

    return {"is_clean": found.is_clean, "is_baseless": found.is_baseless} | asdict(found)


def _show(found: "Verification") -> None:
    if found.partitions:
        console.show_table(_table(found))
    for difference in found.differences[:_SHOWN]:
        console.say(str(difference))
    if found.count > _SHOWN:
        console.say(f"… and {found.count - _SHOWN:,} more")
    for line in _not_compared(found):
        console.say(line)
    for count, what in _remarks(found):
        if count:
            console.say(f"{count:,} {what}")
    console.say(_verdict(found))


def _not_compared(found: "Verification") -> "Iterator[str]":
    """What could not be judged, and why."""
    if not found.values_compared:
        yield (f"values were not compared, since {found.values_not_compared_because}: only places, bytes and counts")
        for table, columns in found.columns_not_compared.items():
            yield (f"not compared in {table}: {', '.join(columns)}")
    for table, cells in found.cells_not_compared.items():
        for column, (count, why) in cells.items():
            yield (f"{count:,} values of {table}.{column} were not compared: {why}")
    for why, batches in found.batches_not_judged.items():
        yield (f"{why}: {_numbers(batches)} held against the present file, as far as that says something of them")


def _numbers(batches: tuple[int, ...]) -> str:
    return f"batch {batches[0]}" if not batches[1:] else f"{len(batches):,} batches from {batches[0]} to {batches[-1]}"


def _remarks(found: "Verification") -> tuple[tuple[int, str], ...]:
    """What was not compared, and why."""
    names = ("unchecked", "given_up", "lenient", "expired")
    unchecked, given_up, lenient, expired = (sum(getattr(p, name) for p in found.partitions) for name in names)
    return (
        (found.older_incarnation, "rows and dead letters of an older incarnation of a topic are left alone"),
        (found.foreign, "rows without Kafka columns, or of another pipeline, are not ours and are left alone"),
        (expired, "offsets that batches read are gone from Kafka: not compared"),
        (unchecked, "rows and dead letters have no record in Kafka any more, or no batch in the ledger: not compared"),
        (
            lenient,
            "rows of batches whose file is not known, or from before their table changed: null was accepted for any value",
        ),
        (given_up, "records lost their row or dead letter, which a repair gave up on record"),
    )


def _verdict(found: "Verification") -> str:
    looked_at = f"{found.records:,} records through batch {found.n} in {found.seconds:.1f} s"
    is_whole = found.values_compared and not found.cells_not_compared and not found.batches_not_judged
    if found.count:
        return f"{found.pipeline}: {found.count:,} difference{'s' if found.count > 1 else ''}, {looked_at}"
    if not found.records:
        return f"{found.pipeline}: nothing was compared, {looked_at}"
    return f"{found.pipeline}: clean{'' if is_whole else ' but for values'}, {looked_at}"


def _table(found: "Verification") -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("partition")
    for name in _COUNTS:
        table.add_column(name, justify="right", no_wrap=True)
    for partition in found.partitions:
        counts = [f"{getattr(partition, name):,}" for name in _COUNTS]
        of = "" if partition.table is None else f" -> {partition.table}"
        table.add_row(f"{partition.topic}/{partition.partition}{of}", *counts)
    return table
