"""`frazil verify`: checks that every record in Kafka has exactly one outcome in the tables."""

from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.output import console
from frazil.cli.output.console import TARGET_FORMS, Json, PipelineName
from frazil.errors import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from frazil.verify.facts.result import Verification

_SHOWN = 10
"""Differences that a person is shown; --json prints more."""

_COUNTS = ("covered", "records", "rows", "letters", "filtered", "missing", "duplicate", "unexpected", "changed")


def verify(
    pipeline: PipelineName,
    *,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar=TARGET_FORMS, help="Where the range begins.", show_default="the first offset read"
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar=TARGET_FORMS, help="Where the range ends.", show_default="the position"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare every record that Kafka still has with its row or dead letter, value by value, and the ledger too.

    The check is independent: it shares no code with the part that writes. It names the values that it can't check, with the
    reason. The exit code is 1 if something differs, and if Kafka no longer has any of the records.
    """
    from frazil.iceberg.patches import metadata as _variant  # noqa: F401  # PyIceberg must know the type to open such tables
    from frazil.project import Project
    from frazil.verify.check import verify as check

    project = Project.load()
    verification = check(project, project.pipeline(pipeline), from_, end)
    if as_json:
        console.print_json(_report(verification))
    else:
        _show(verification)
    if not verification.is_clean:
        raise typer.Exit(EXIT_FAILED)


def _report(verification: "Verification") -> dict[str, object]:
    verdict = {"is_clean": verification.is_clean, "is_baseless": verification.is_baseless}
    differences = [difference.document() for difference in verification.differences]
    return {**verdict, **console.json_value(verification), "differences": differences}


def _show(verification: "Verification") -> None:
    if verification.partitions:
        console.show_table(_table(verification))
    for difference in verification.differences[:_SHOWN]:
        console.say(str(difference))
    if verification.count > _SHOWN:
        console.say(f"… and {verification.count - _SHOWN:,} more")
    for line in (*_not_compared(verification), *verification.notes):
        console.say(line)
    for count, what in _remarks(verification):
        if count:
            console.say(f"{count:,} {what}")
    console.say(_verdict(verification))


def _not_compared(verification: "Verification") -> "Iterator[str]":
    """Records and rows that could not be compared, and why."""
    if not verification.values_compared:
        yield f"values were not compared, since {verification.values_not_compared_because}: only offsets, bytes and counts"
        for table, columns in verification.columns_not_compared.items():
            yield f"not compared in {table}: {', '.join(columns)}"
    for table, cells in verification.cells_not_compared.items():
        for column, (count, why) in cells.items():
            yield f"{count:,} values of {table}.{column} were not compared: {why}"
    for why, numbers in verification.batches_not_judged.items():
        batches = (
            f"batch {numbers[0]}"
            if len(numbers) == 1
            else f"{len(numbers):,} batches from {numbers[0]} to {numbers[-1]}"
        )
        yield f"{why}: {batches} compared with the present pipeline file, as far as it applies to them"


def _remarks(verification: "Verification") -> tuple[tuple[int, str], ...]:
    """Counts of rows, records and offsets that were not fully compared, and why."""
    unchecked, given_up, lenient, expired = (
        sum(getattr(partition, name) for partition in verification.partitions)
        for name in ("unchecked", "given_up", "lenient", "expired")
    )
    return (
        (verification.older_incarnation, "rows and dead letters of an older incarnation of a topic are left alone"),
        (verification.foreign, "rows without Kafka columns, or of another pipeline, are left alone"),
        (expired, "offsets that batches read are gone from Kafka: not compared"),
        (unchecked, "rows and dead letters have no record in Kafka any more, or no batch in the ledger: not compared"),
        (
            lenient,
            "rows where null was accepted for any value: the file of their batch is unknown, or a column was changed since",
        ),
        (given_up, "records have no row or dead letter any more, because a repair recorded it as lost"),
    )


def _verdict(verification: "Verification") -> str:
    extent = f"{verification.records:,} records through batch {verification.n} in {verification.seconds:.1f} s"
    is_complete = (
        verification.values_compared and not verification.cells_not_compared and not verification.batches_not_judged
    )
    if verification.count:
        return f"{verification.pipeline}: {verification.count:,} difference{'s' if verification.count > 1 else ''}, {extent}"
    if not verification.records:
        return f"{verification.pipeline}: nothing was compared, {extent}"
    return f"{verification.pipeline}: clean{'' if is_complete else ' but for values'}, {extent}"


def _table(verification: "Verification") -> "Table":
    table = console.new_table("partition", numbers=_COUNTS, is_tight=True)
    for partition in verification.partitions:
        counts = [f"{getattr(partition, name):,}" for name in _COUNTS]
        target = "" if partition.table is None else f" -> {partition.table}"
        table.add_row(f"{partition.topic}/{partition.partition}{target}", *counts)
    return table
