"""What a pipeline file asks of changes, as the room of records takes it, and what JSON values look like that tell of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.errors import Terminal
from frazil.pipeline.changes import Changes, Words
from frazil.pipeline.model import Destination, Pipeline
from frazil.pipeline.route import Route
from frazil.records.changes.canal import Canal
from frazil.records.changes.debezium import Debezium
from frazil.records.changes.own import Envelope, OpColumn
from frazil.records.changes.spec import FACTS, ChangeFormat, MergeSpec
from frazil.records.changes.streams import Dms, Maxwell
from frazil.records.formats.catalogue import JSON
from frazil.records.formats.port import port_type
from frazil.records.spec import RecordSpec

_NOBODY: Final = "\0"
"""A field that values don't have, where nothing is known of them but their rows."""

_DECLARE: Final = "declare what values hold: value.fields"

Tree = dict[str, Any]
"""Fields by name: an Arrow type, or the fields within."""

Columns = list[tuple[tuple[str, ...], pa.DataType]]
"""Paths in a row, and types."""


def merge_spec(pipeline: Pipeline, to: Destination) -> MergeSpec | None:
    """How rows are merged into a destination, or kept as changes; None if they are added to it."""
    if not to.is_merged and not to.is_history:
        return None
    in_record = bool(to.identifier) and all(to.columns[name].of == "key" for name in to.identifier)
    changes = None if to.changes is None else _format(to.changes, _taken(pipeline, to), key_in_record=in_record)
    return MergeSpec(to.identifier, to.order_by, to.deleted_column, changes)


def merge_columns(to: Destination, columns: pa.Schema) -> pa.Schema:
    """The declared columns; a merged table's column of `order_by` is never null, or changes could not be told apart."""
    if to.order_by is None:
        return columns
    at = columns.get_field_index(to.order_by)
    return columns.set(at, columns.field(at).with_nullable(nullable=False))


def _taken(pipeline: Pipeline, to: Destination) -> frozenset[str] | None:
    """The fields of a row that columns take; None if any may be: by a name in other letters, a rescue, or a new column."""
    value = pipeline.value
    if to.evolves != "none" or value.field_names != "exact" or value.unknown_fields != "ignore":
        return None
    paths = [(name,) if of.source is None else of.source for name, of in to.columns.items() if of.of != "key"]
    return None if () in paths else frozenset(path[0] for path in paths if path[0] != FACTS)


def _format(changes: Changes, taken: frozenset[str] | None, *, key_in_record: bool) -> ChangeFormat:
    words = {} if changes.values is None else _words(changes.values)
    match changes.format:
        case "debezium":
            return Debezium(key_in_record, taken)
        case "dms":
            return Dms(key_in_record)
        case "maxwell":
            return Maxwell(key_in_record)
        case "canal":
            return Canal()
        case "op_column":
            return OpColumn(changes.op or "", words, changes.row, changes.before, key_in_record)
        case "envelope":
            return Envelope(words, key_in_record)


def _words(words: Words) -> dict[str, str]:
    kinds = {UPSERT: (*words.insert, *words.update), DELETE: words.delete, TRUNCATE: words.truncate}
    return {word: op for op, of in kinds.items() for word in of}


def change_specs(pipeline: Pipeline, specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec] | None:
    """Specs that know what JSON values hold that tell of changes, if the file does not say so; None if it does, or none tell.

    Where tables follow their records, each reads the rows of its changes for itself: types of columns may differ.

    Raises:
        Terminal: The file must say so.
    """
    merged = {of.table: of for of in pipeline.destinations if of.changes is not None}
    if pipeline.value.format != JSON or not merged:
        return None
    _refuse_unknown(pipeline)
    if isinstance(pipeline.value.fields, dict):
        return None
    _refuse_ways(pipeline, merged)
    changes = next(of.changes for of in merged.values() if of.changes is not None)
    rows = {table: _columns(to, specs[table], changes) for table, to in merged.items()}
    if all(of.evolves == "none" for of in merged.values()):
        fields = _shape(changes, rows, specs)
        return {table: replace(spec, fields=fields) for table, spec in specs.items()}
    fields = _around(pipeline, changes, rows)
    found = {}
    for table, spec in specs.items():
        row = [*rows[table], ((spec.rescued_column,), pa.string())]
        merge = replace(spec.merge, shape=_shape(changes, {table: row}, {table: spec})) if spec.merge else None
        found[table] = replace(spec, fields=fields, merge=merge)
    return found


def _refuse_unknown(pipeline: Pipeline) -> None:
    if pipeline.value.unknown_fields != "ignore":
        raise Terminal(
            f"value.unknown_fields: {pipeline.value.unknown_fields} looks at the top level of a JSON value, where changes have"
            " an envelope",
            next_step="leave it out",
        )


def _refuse_ways(pipeline: Pipeline, merged: Mapping[str, Destination]) -> None:
    if pipeline.transforms:
        raise Terminal("transforms come before changes: what JSON values hold must be declared", next_step=_DECLARE)
    told = {of.changes.model_dump_json() for of in merged.values() if of.changes is not None}
    if len(told) > 1 or len(merged) < len(pipeline.destinations):
        raise Terminal(
            "destinations take records in several ways: what JSON values hold must be declared", next_step=_DECLARE
        )


def _shape(changes: Changes, rows: Mapping[str, Columns], specs: Mapping[str, RecordSpec]) -> pa.Schema:
    """What values hold that tell of changes of these tables."""
    row: Tree = {}
    for table, columns in rows.items():
        for path, of in columns:
            _plant(row, path, of, f"columns of {table}")
    takes_order = any(path == (FACTS, "order") for spec in specs.values() for path in spec.sources.values())
    return pa.schema(list(_struct(_SHAPES[changes.format](changes, row, takes_order))))


def _around(pipeline: Pipeline, changes: Changes, rows: Mapping[str, Columns]) -> pa.Schema:
    """What values hold beside rows, and what decides about their table."""
    tree = _filled(_SHAPES[changes.format](changes, {}, False))  # noqa: FBT003 - what all shapes take
    route = deciding(pipeline.route)
    if route is not None:
        path = tuple(route[1].split("."))
        known = (of for columns in rows.values() for column, of in columns if path[-len(column) :] == column)
        if not _has(tree, path):
            _plant(tree, path, next(known, pa.string()), route[0])
    return pa.schema(list(_struct(tree or {_NOBODY: pa.string()})))


def _filled(tree: Tree) -> Tree:
    """A tree without fields that hold nothing."""
    found = {name: _filled(of) if isinstance(of, dict) else of for name, of in tree.items()}
    return {name: of for name, of in found.items() if of != {} and not _is_empty(of)}


def _is_empty(of: Any) -> bool:
    return isinstance(of, pa.ListType) and pa.types.is_struct(of.value_type) and not of.value_type.num_fields


def _has(tree: Tree, path: tuple[str, ...]) -> bool:
    here: Any = tree
    for step in path:
        here = here.get(step) if isinstance(here, dict) else None
    return here is not None


def _columns(to: Destination, spec: RecordSpec, changes: Changes) -> Columns:
    """Where each column of the value is in a row, and as what it is sent."""
    return list(_paths(to, spec.columns, spec.rescued_column, is_text=changes.format == "canal"))


def _paths(
    to: Destination, columns: pa.Schema, rescued: str, *, is_text: bool
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for field in columns:
        column = to.columns.get(field.name)
        path = (field.name,) if column is None or column.source is None else column.source
        is_rescued = to.evolves != "none" and field.name == rescued
        if (column is not None and column.of == "key") or path[:1] == (FACTS,) or is_rescued:
            continue
        if not path:
            raise Terminal(
                f"column {field.name} of {to.table} takes the whole row: what JSON values hold must be declared",
                next_step=_DECLARE,
            )
        is_counted = column is not None and column.unit is not None
        yield path, pa.string() if is_text else pa.int64() if is_counted else port_type(field.type)


def _plant(tree: Tree, path: tuple[str, ...], of: Any, where: str) -> None:
    """Put a field into a tree.

    Raises:
        Terminal: It is there as something else.
    """
    *steps, last = path
    here: Any = tree
    for step in steps:
        here = here.setdefault(step, {}) if isinstance(here, dict) else None
    if not isinstance(here, dict) or here.setdefault(last, of) != of:
        raise Terminal(
            f"{where} take {'.'.join(path)} in two ways: what JSON values hold must be declared", next_step=_DECLARE
        )


def _struct(tree: Tree) -> pa.StructType:
    return pa.struct([pa.field(name, _struct(of) if isinstance(of, dict) else of) for name, of in tree.items()])


def _debezium(_changes: Changes, row: Tree, takes_order: bool) -> Tree:  # noqa: FBT001 - what all shapes take
    names = ("db", "schema", "table", "collection")
    source: Tree = dict.fromkeys(names, pa.string())
    if takes_order:
        source |= dict.fromkeys(("lsn", "pos", "row", "event_serial_no", "ts_ms", "ord"), pa.int64())
        source |= dict.fromkeys(("file", "change_lsn", "commit_lsn", "commit_scn", "scn"), pa.string())
    return {"before": row, "after": row, "op": pa.string(), "ts_ms": pa.int64(), "source": source}


def _dms(_changes: Changes, row: Tree, _takes_order: bool) -> Tree:  # noqa: FBT001 - what all shapes take
    names = ("operation", "record-type", "schema-name", "table-name", "timestamp")
    # Columns of the row as it was may be among those of the row as it is.
    both = {f"BI_{name}": of for name, of in row.items()} | row
    return {"data": both, "before-image": row, "metadata": dict.fromkeys(names, pa.string())}


def _maxwell(_changes: Changes, row: Tree, takes_order: bool) -> Tree:  # noqa: FBT001 - what all shapes take
    tree: Tree = {"type": pa.string(), "database": pa.string(), "table": pa.string(), "ts": pa.int64()}
    order: Tree = {"position": pa.string(), "xoffset": pa.int64()} if takes_order else {}
    return {**tree, **order, "data": row, "old": row}


def _canal(_changes: Changes, row: Tree, _takes_order: bool) -> Tree:  # noqa: FBT001 - what all shapes take
    rows = pa.list_(_struct(row))
    names: Tree = dict.fromkeys(("type", "database", "table"), pa.string())
    return {**names, "isDdl": pa.bool_(), "es": pa.int64(), "data": rows, "old": rows}


def _op_column(changes: Changes, row: Tree, _takes_order: bool) -> Tree:  # noqa: FBT001 - what all shapes take
    tree: Tree = {}
    places = {"row": changes.row, "before": changes.before}
    if changes.row is None:
        tree |= row
    for name, path in places.items():
        if path is not None:
            _plant(tree, tuple(path.split(".")), row, f"changes.{name}")
    _plant(tree, tuple((changes.op or "").split(".")), pa.string(), "changes.op")
    return tree


def _envelope(changes: Changes, row: Tree, _takes_order: bool) -> Tree:  # noqa: FBT001 - what all shapes take
    return dict.fromkeys(_words(changes.values or Words()), row)


_SHAPES: Final[Mapping[str, Callable[[Changes, Tree, bool], Tree]]] = {
    "debezium": _debezium,
    "dms": _dms,
    "maxwell": _maxwell,
    "canal": _canal,
    "op_column": _op_column,
    "envelope": _envelope,
}


def deciding(route: Route | None) -> tuple[str, str] | None:
    """The key of a file that names the field that decides, and that field; None if the topic does, or nothing."""
    if route is None or route.topic is not None:
        return None
    if route.static is not None:
        return "route.static.field", route.static.field
    return None if route.field is None else ("route.field.name", route.field.name)
