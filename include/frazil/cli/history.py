"""`frazil history`: the batches of a pipeline."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from frazil.cli import console
from frazil.cli.options import Json, PipelineName

if TYPE_CHECKING:
    from rich.table import Table

    from frazil.report.history import BatchHistory

_NUMBERS = ("read", "rows", "dead", "filtered", "seconds")


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
    console.out().print(batch_table(batches))
    for code, count in report.dead_letter_counts(project, chosen).items():
        console.say(f"dead letters {code}: {count:,}")


def batch_table(batches: "Sequence[BatchHistory]") -> "Table":
    """Batches as a table of 80 columns or more: what does not fit goes into further lines of the offsets."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("committed", no_wrap=True)
    table.add_column("snapshot", justify="right", no_wrap=True)
    for name in _NUMBERS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("offsets from..next", overflow="fold")
    for batch in batches:
        outcome = [f"{count:,}" for count in (batch.read, batch.written, batch.dead, batch.filtered)]
        when = f"{batch.committed_at:%m-%d %H:%M:%S}"
        offsets = " ".join(_offsets(batch))
        table.add_row(str(batch.n), when, str(batch.snapshot_id or ""), *outcome, f"{batch.seconds:.1f}", offsets)
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
