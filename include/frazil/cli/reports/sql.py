"""`frazil sql`: small queries of the tables."""

from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.table import Table

_SHOWN_ROWS = 500
"""Rows that a person is shown; --json prints all."""


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="One SELECT in DuckDB's SQL.", show_default=False)],
    *,
    catalog: Annotated[
        str | None, typer.Option(help="Catalog of the settings file.", show_default="'lake', or the only one")
    ] = None,
    as_json: Json = False,
) -> None:
    """Query the Iceberg tables with SQL. It only reads, and suits small results; use Spark for large ones.

    Tables are named [cyan]namespace.table[/cyan]. As in Spark, add [cyan].snapshots[/cyan], [cyan].history[/cyan],
    [cyan].files[/cyan], [cyan].partitions[/cyan], [cyan].manifests[/cyan] or [cyan].refs[/cyan] for its metadata, and
    [cyan].branch_NAME[/cyan] or [cyan].tag_NAME[/cyan] for a branch or tag. A bare name means branch main, also where a
    pipeline lands on another branch.
    """
    from frazil.project import Project
    from frazil.report.sql import query as run_query

    result = run_query(Project.load(), query, catalog=catalog)
    if as_json:
        console.print_json(_rows(result))
    else:
        show_result(result)


def show_result(result: "pa.Table") -> None:
    """Print a result as a table, or record by record where its columns don't fit side by side."""
    out = console.out()
    shown = result.slice(0, _SHOWN_ROWS)
    table = _side_by_side(shown)
    if table.columns and console.full_width(out, table) <= out.width:
        out.print(table)
    else:
        _one_by_one(shown)
    count = "1 row" if result.num_rows == 1 else f"{result.num_rows:,} rows"
    console.say(count + (f", the first {shown.num_rows:,} shown" if result.num_rows > shown.num_rows else ""))


def _side_by_side(result: "pa.Table") -> "Table":
    from pyarrow import types

    table = console.new_table()
    for field in result.schema:
        number = types.is_integer(field.type) or types.is_floating(field.type) or types.is_decimal(field.type)
        table.add_column(field.name, justify="right" if number else "left", no_wrap=True)
    columns = [[_cell(value) for value in column.to_pylist(maps_as_pydicts="lossy")] for column in result.columns]
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def _one_by_one(result: "pa.Table") -> None:
    width = max((len(name) for name in result.column_names), default=0)
    for number, row in enumerate(_rows(result), 1):
        console.say(f"-- {number}")
        for name, value in row.items():
            console.say(f"{name:{width}}  {_cell(value)}")


def _cell(value: object) -> str:
    import json

    if value is None:
        return "null"
    json_value = console.json_value(value)
    text = json.dumps(json_value, ensure_ascii=False) if isinstance(json_value, dict | list | bool) else str(json_value)
    return text.replace("\r", "\\r").replace("\n", "\\n")


def _rows(result: "pa.Table") -> list[dict[str, object]]:
    """Rows as mappings. If columns share a name, the later ones get a number, so that no column is lost."""
    names: list[str] = []
    for name in result.column_names:
        twins = sum(name == earlier or earlier.startswith(f"{name}_") for earlier in names)
        names.append(f"{name}_{twins}" if name in names else name)
    rows: list[dict[str, object]] = result.rename_columns(names).to_pylist(maps_as_pydicts="lossy")
    return rows
