"""What a demo shows at its end: the table, its snapshots, the dead letters, and the count that must come out even."""

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from frazil.cli import console
from frazil.cli.history import print_batches
from frazil.cli.sql import show_result
from frazil.maintain.last import Maintained, last
from frazil.pipeline.model import Pipeline
from frazil.project import Project
from frazil.report.history import history
from frazil.report.reconcile import reconcile
from frazil.report.sql import query

if TYPE_CHECKING:
    import pyarrow as pa

_SAMPLE_ROWS = 5
_WHOLE = 20
"""Values up to this length are never cut; order ids have 39 digits, toppings as much text."""


def print_report(project: Project, pipeline: Pipeline) -> bool:
    """Print what came out of the pipeline.

    Returns:
        Whether every produced record is accounted for.
    """
    table, letters = pipeline.destinations[0].table, pipeline.dead_letters_table
    names = ", ".join(f'"{column}"' for column in pipeline.destinations[0].columns)
    # Names come from the pipeline file, whose model lets nothing else pass.
    sample = f"SELECT {names} FROM {table} LIMIT {_SAMPLE_ROWS}"  # noqa: S608
    stores = f"SELECT store_id, count(*) AS pizzas FROM {table} GROUP BY store_id ORDER BY 2 DESC, 1 LIMIT 10"  # noqa: S608
    reasons = f"SELECT code, stage, count(*) AS records FROM {letters} GROUP BY ALL ORDER BY records DESC, code"  # noqa: S608
    console.headline(f"Rows of {table}")
    out = console.out()
    out.print(_sample(query(project, sample), out.width))
    console.headline("The ten stores with most pizzas")
    show_result(query(project, stores))
    console.headline(f"Snapshots of {table}")
    print_batches(history(project, pipeline))
    console.headline(f"Dead letters in {letters}")
    show_result(query(project, reasons))
    console.headline(f"Maintenance of {table}")
    print_maintenance(last(project, pipeline).get(table))
    return _print_reconciliation(project, pipeline)


def print_maintenance(noted: Maintained | None) -> None:
    """Print what maintenance did, as the table has it noted; None if it says nothing."""
    if noted is None:
        console.say("nothing is noted in the table")
        return
    before, after = noted.before, noted.after
    console.say(
        f"health {before.score} -> {after.score}, {before.files:,} -> {after.files:,} files,"
        f" {before.bytes:,} -> {after.bytes:,} bytes, {before.snapshots:,} -> {after.snapshots:,} snapshots"
    )
    for step in noted.steps:
        console.say(step.said)


def _print_reconciliation(project: Project, pipeline: Pipeline) -> bool:
    console.headline("Reconciliation")
    agrees = True
    for found in reconcile(project, pipeline):
        is_even = found.difference == 0
        agrees = agrees and is_even
        console.out().print(Text(str(found), style="green" if is_even else "bold red"), soft_wrap=True)
        if not is_even:
            how = "are missing" if found.difference > 0 else "are there too often"
            console.say(f"{abs(found.difference)} records {how}")
    return agrees


def _sample(rows: "pa.Table", page: int) -> Table:
    """A table that fits a page of so many columns: short values stay whole, the others share the room and are cut."""
    cells = {
        name: [str(value) for value in column.to_pylist()]
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    widths = {name: max(map(len, [name, *values])) for name, values in cells.items()}
    cut = [name for name, width in widths.items() if width > _WHOLE]
    taken = sum(width for name, width in widths.items() if name not in cut) + 2 * len(widths)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, width in widths.items():
        room = max(len(name), (page - taken) // len(cut)) if name in cut else width
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=min(width, room))
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table
