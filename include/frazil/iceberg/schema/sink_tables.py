"""Reads tables that Kafka Connect's Iceberg sink wrote: their columns, and the offsets up to which files are committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyiceberg.table import Table
from pyiceberg.types import DecimalType, FixedType, IcebergType, ListType, MapType, StructType

from frazil.connect.control import recorded_offsets
from frazil.error_codes import BAD_FILE, TABLE_UNFIT
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.summary_state import ancestry
from frazil.iceberg.schema.schema import plain_types


def columns_of(table: Table, name: str) -> dict[str, dict[str, Any]]:
    """The columns of a table as a pipeline file declares them: type, required, doc.

    Raises:
        Terminal: A column has a type that can't be declared.
    """
    columns: dict[str, dict[str, Any]] = {}
    for field in table.schema().fields:
        column_type = _declared(field.field_type, f"table {name}, column {field.name}")
        required = {"required": True} if field.required else {}
        columns[field.name] = {"type": column_type, **required, **({"doc": field.doc} if field.doc else {})}
    return columns


def committed_control_offsets(lake: Lake, name: str, branch: str, topic: str, group: str) -> dict[int, int] | None:
    """Offsets of the control topic up to which a branch of a table has the sink's files, by partition; None without table.

    Raises:
        Terminal: A snapshot names offsets in a form that is not the sink's.
    """
    table = lake.find_table(name)
    if table is None:
        return None
    try:
        return recorded_offsets(_summaries(table, branch), topic, group)
    except (ValueError, AttributeError, TypeError) as error:
        raise BAD_FILE.terminal(
            f"table {name}: a snapshot of branch {branch} names offsets of {topic} in an unknown form: {error}",
            next_step="check the properties kafka.connect.offsets.… in the summaries of its snapshots",
        ) from error


def _summaries(table: Table, branch: str) -> Iterator[Mapping[str, str]]:
    reference = table.metadata.refs.get(branch)
    for snapshot in ancestry(table.metadata, reference.snapshot_id if reference else None):
        yield snapshot.summary.additional_properties if snapshot.summary is not None else {}


def _declared(iceberg_type: IcebergType, where: str) -> str:
    match iceberg_type:
        case DecimalType():
            return f"decimal({iceberg_type.precision},{iceberg_type.scale})"
        case FixedType():
            return f"fixed[{len(iceberg_type)}]"
        case ListType():
            return f"list<{_declared(iceberg_type.element_type, where)}>"
        case MapType():
            return f"map<{_declared(iceberg_type.key_type, where)}, {_declared(iceberg_type.value_type, where)}>"
        case StructType():
            inner = (
                f"{field.name}: {_declared(field.field_type, f'{where}.{field.name}')}" for field in iceberg_type.fields
            )
            return f"struct<{', '.join(inner)}>"
    declared = plain_types().get(iceberg_type)
    if declared is None:
        raise TABLE_UNFIT.terminal(
            f"{where}: the type {iceberg_type} can't be declared",
            next_step="leave the column out: name the others by --columns",
        )
    return declared
