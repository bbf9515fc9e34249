"""`frazil history`: the batches of a pipeline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil.cli import console
from frazil.cli.options import Json, PipelineName

if TYPE_CHECKING:
    from rich.table import Table

    from frazil.report.history import BatchHistory

_WIDE = 110
"""Columns from which the offsets find room beside the counts of large batches."""


def history(pipeline: PipelineName, *, as_json: Json = False) -> None:
    """Show the batches of a pipeline: snapshot, rows, offsets and duration of each, and the dead letters by reason."""
    from dataclasses import asdict

    from frazil.project import Project
    from frazil.report import history as report

    project = Project.load()
    chosen = project.pipeline(pipeline)
    batches = report.history(project, chosen)
    if as_json:
        console.print_json([asdict(batch) for batch in batches])
        return
    if not batches:
        console.say(f"{pipeline}: no batch yet")
        return
    print_batches(batches)
    for code, count in report.dead_letter_counts(project, chosen).items():
        console.say(f"dead letters {code}: {count:,}")


def print_batches(batches: "Sequence[BatchHistory]") -> None:
    """Print batches as a table; on a narrow page their offsets stand below it, so that nothing is cut."""
    out = console.out()
    is_wide = out.width >= _WIDE
    out.print(_table(batches, with_offsets=is_wide))
    if not is_wide:
        for batch in batches:
            out.print(f"batch {batch.n} offsets {' '.join(_offsets(batch))}")


def _table(batches: "Sequence[BatchHistory]", *, with_offsets: bool) -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("n", "committed", "snapshot", "read", "rows", "dead", "filtered", "seconds"):
        table.add_column(name, justify="left" if name == "committed" else "right", no_wrap=True)
    if with_offsets:
        table.add_column("offsets from..next", overflow="fold")
    for batch in batches:
        outcome = [f"{count:,}" for count in (batch.read, batch.written, batch.dead, batch.filtered)]
        row = [str(batch.n), f"{batch.committed_at:%m-%d %H:%M:%S}", str(batch.snapshot_id or ""), *outcome]
        table.add_row(*row, f"{batch.seconds:.1f}", *([" ".join(_offsets(batch))] if with_offsets else []))
    return table


def _offsets(batch: "BatchHistory") -> list[str]:
    """`partition:from..next` of every partition the batch read, with the topic's name where there are several."""
    several = len(batch.position) > 1
    return [
        f"{topic}/{number}:{begin}..{end}" if several else f"{number}:{begin}..{end}"
        for topic, at in batch.position.items()
        for number, (begin, end) in enumerate(zip(at["from"], at["next"], strict=True))
        if begin < end or batch.kind == "start"
    ]
