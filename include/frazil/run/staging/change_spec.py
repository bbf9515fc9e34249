"""Change capture of a pipeline file in the form of `frazil.records`: how rows are merged, and the fields of JSON change events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from frazil.batch.changes import DELETE, TRUNCATE, UPSERT
from frazil.error_codes import BAD_SCHEMA
from frazil.pipeline.models.layout import Changes, Words
from frazil.pipeline.models.pipeline_file import Destination, Pipeline
from frazil.pipeline.models.route import Route
from frazil.records.cdc.change_formats import Canal, Dms, Envelope, Maxwell, OpColumn
from frazil.records.cdc.debezium import Debezium
from frazil.records.model.changes import FACTS, ChangeFormat, MergeSpec
from frazil.records.model.format import JSON, decoded_type
from frazil.records.model.spec import RecordSpec

_NO_FIELD: Final = "\0"
"""Name of a field that no value has: stands in where only the rows in values have known fields."""

_DECLARE: Final = "declare the fields of the value: value.fields"

Tree = dict[str, Any]
"""Fields by name: an Arrow type, or the fields within."""

Columns = list[tuple[tuple[str, ...], pa.DataType]]
"""Paths in a row, and types."""


def merge_spec(pipeline: Pipeline, destination: Destination) -> MergeSpec | None:
    """How rows are merged into a destination, or kept as changes; None if they are appended."""
    if not destination.is_merged and not destination.is_history:
        return None
    in_record = bool(destination.identifier) and all(
        destination.columns[name].part == "key" for name in destination.identifier
    )
    changes = (
        None
        if destination.changes is None
        else _format(destination.changes, _selected_fields(pipeline, destination), key_in_record=in_record)
    )
    return MergeSpec(destination.identifier, destination.order_by, destination.deleted_column, changes)


def merge_columns(destination: Destination, columns: pa.Schema) -> pa.Schema:
    """The declared columns. The `order_by` column of a merged table is never null, as it decides which change is later."""
    if destination.order_by is None:
        return columns
    index = columns.get_field_index(destination.order_by)
    return columns.set(index, columns.field(index).with_nullable(nullable=False))


def _selected_fields(pipeline: Pipeline, destination: Destination) -> frozenset[str] | None:
    """The fields of a row that columns read; None if any field may be read: names in any case, rescued or new columns."""
    value = pipeline.value
    if destination.evolves != "none" or value.field_names != "exact" or value.unknown_fields != "ignore":
        return None
    paths = [
        (name,) if column.source is None else column.source
        for name, column in destination.columns.items()
        if column.part == "value"
    ]
    return None if () in paths else frozenset(path[0] for path in paths if path[0] != FACTS)


def _format(changes: Changes, selected_fields: frozenset[str] | None, *, key_in_record: bool) -> ChangeFormat:
    words = {} if changes.values is None else _op_by_word(changes.values)
    match changes.format:
        case "debezium":
            return Debezium(key_in_record, selected_fields)
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


def _op_by_word(words: Words) -> dict[str, str]:
    kinds = {UPSERT: (*words.insert, *words.update), DELETE: words.delete, TRUNCATE: words.truncate}
    return {word: op for op, op_words in kinds.items() for word in op_words}


def change_specs(pipeline: Pipeline, specs: Mapping[str, RecordSpec]) -> dict[str, RecordSpec] | None:
    """Specs with the fields of JSON change events; None if the file declares these, or no destination takes changes.

    Where tables evolve, each has fields of its own for the rows in its events: types of columns may differ.

    Raises:
        Terminal: The file must declare the fields.
    """
    merged = {
        destination.table: destination for destination in pipeline.destinations if destination.changes is not None
    }
    if pipeline.value.format != JSON or not merged:
        return None
    _refuse_unknown(pipeline)
    if pipeline.value.fields is not None:
        return None
    _refuse_mixed_changes(pipeline, merged)
    changes = next(destination.changes for destination in merged.values() if destination.changes is not None)
    is_text = changes.format == "canal"
    rows = {
        table: list(_row_fields(destination, specs[table], is_text=is_text)) for table, destination in merged.items()
    }
    if all(destination.evolves == "none" for destination in merged.values()):
        fields = _shape(changes, rows, specs)
        return {table: replace(spec, fields=fields) for table, spec in specs.items()}
    fields = _surrounding_fields(pipeline, changes, rows)
    specs_with_shapes = {}
    for table, spec in specs.items():
        row = [*rows[table], ((spec.rescued_column,), pa.string())]
        merge = replace(spec.merge, shape=_shape(changes, {table: row}, {table: spec})) if spec.merge else None
        specs_with_shapes[table] = replace(spec, fields=fields, merge=merge)
    return specs_with_shapes


def _refuse_unknown(pipeline: Pipeline) -> None:
    if pipeline.value.unknown_fields != "ignore":
        raise BAD_SCHEMA.terminal(
            f"value.unknown_fields: {pipeline.value.unknown_fields} checks the top level of a JSON value, which is an envelope in"
            " changes",
            next_step="remove it",
        )


def _refuse_mixed_changes(pipeline: Pipeline, merged: Mapping[str, Destination]) -> None:
    if pipeline.transforms:
        raise BAD_SCHEMA.terminal(
            "transforms come before changes, so the JSON fields must be declared", next_step=_DECLARE
        )
    declarations = {
        destination.changes.model_dump_json() for destination in merged.values() if destination.changes is not None
    }
    if len(declarations) > 1 or len(merged) < len(pipeline.destinations):
        raise BAD_SCHEMA.terminal(
            "destinations use different change modes, so the JSON fields must be declared", next_step=_DECLARE
        )


def _shape(changes: Changes, rows: Mapping[str, Columns], specs: Mapping[str, RecordSpec]) -> pa.Schema:
    """The fields of JSON change events for these tables."""
    row: Tree = {}
    for table, columns in rows.items():
        for path, data_type in columns:
            _add_field(row, path, data_type, f"columns of {table}")
    takes_order = any(path == (FACTS, "order") for spec in specs.values() for path in spec.sources.values())
    return pa.schema(list(_struct(_event_fields(changes, row, takes_order=takes_order))))


def _surrounding_fields(pipeline: Pipeline, changes: Changes, rows: Mapping[str, Columns]) -> pa.Schema:
    """The fields of JSON change events without those of rows, but with the field that chooses the table."""
    tree = _pruned(_event_fields(changes, {}))
    route = routing_field(pipeline.route)
    if route is not None:
        path = tuple(route[1].split("."))
        column_types = (
            data_type for columns in rows.values() for column, data_type in columns if path[-len(column) :] == column
        )
        if not _has_path(tree, path):
            _add_field(tree, path, next(column_types, pa.string()), route[0])
    return pa.schema(list(_struct(tree or {_NO_FIELD: pa.string()})))


def _pruned(tree: Tree) -> Tree:
    """The tree without fields that have no fields themselves."""
    pruned = {name: _pruned(node) if isinstance(node, dict) else node for name, node in tree.items()}
    return {name: node for name, node in pruned.items() if node != {} and not _is_empty(node)}


def _is_empty(node: Any) -> bool:
    return isinstance(node, pa.ListType) and pa.types.is_struct(node.value_type) and not node.value_type.num_fields


def _has_path(tree: Tree, path: tuple[str, ...]) -> bool:
    node: Any = tree
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return node is not None


def _row_fields(
    destination: Destination, spec: RecordSpec, *, is_text: bool
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    """Path of each column of the value within a row of an event, and the type that the event has for it."""
    for field in spec.columns:
        column = destination.columns.get(field.name)
        path = (field.name,) if column is None or column.source is None else column.source
        is_rescued = destination.evolves != "none" and field.name == spec.rescued_column
        if (column is not None and column.part != "value") or path[:1] == (FACTS,) or is_rescued:
            continue
        if not path:
            raise BAD_SCHEMA.terminal(
                f"column {field.name} of {destination.table} takes the whole row, so the JSON fields must be declared",
                next_step=_DECLARE,
            )
        has_unit = column is not None and column.unit is not None
        yield path, pa.string() if is_text else pa.int64() if has_unit else decoded_type(field.type)


def _add_field(tree: Tree, path: tuple[str, ...], field_type: Any, where: str) -> None:
    """Add a field to a tree.

    Raises:
        Terminal: The tree has it with another type.
    """
    *steps, last = path
    node: Any = tree
    for step in steps:
        node = node.setdefault(step, {}) if isinstance(node, dict) else None
    if not isinstance(node, dict) or node.setdefault(last, field_type) != field_type:
        raise BAD_SCHEMA.terminal(
            f"{where} use {'.'.join(path)} in two ways, so the JSON fields must be declared", next_step=_DECLARE
        )


def _struct(tree: Tree) -> pa.StructType:
    return pa.struct([pa.field(name, _struct(node) if isinstance(node, dict) else node) for name, node in tree.items()])


def _event_fields(changes: Changes, row: Tree, *, takes_order: bool = False) -> Tree:
    """The fields of change events whose rows have these fields."""
    match changes.format:
        case "debezium":
            source: Tree = dict.fromkeys(("db", "schema", "table", "collection"), pa.string())
            if takes_order:
                source |= dict.fromkeys(("lsn", "pos", "row", "event_serial_no", "ts_ms", "ord"), pa.int64())
                source |= dict.fromkeys(("file", "change_lsn", "commit_lsn", "commit_scn", "scn"), pa.string())
            return {"before": row, "after": row, "op": pa.string(), "ts_ms": pa.int64(), "source": source}
        case "dms":
            names = ("operation", "record-type", "schema-name", "table-name", "timestamp")
            # DMS may put the columns of the row before the change among those of the present row.
            row_and_before = {f"BI_{name}": node for name, node in row.items()} | row
            return {"data": row_and_before, "before-image": row, "metadata": dict.fromkeys(names, pa.string())}
        case "maxwell":
            tree: Tree = {"type": pa.string(), "database": pa.string(), "table": pa.string(), "ts": pa.int64()}
            order: Tree = {"position": pa.string(), "xoffset": pa.int64()} if takes_order else {}
            return {**tree, **order, "data": row, "old": row}
        case "canal":
            rows = pa.list_(_struct(row))
            texts: Tree = dict.fromkeys(("type", "database", "table"), pa.string())
            return {**texts, "isDdl": pa.bool_(), "es": pa.int64(), "data": rows, "old": rows}
        case "op_column":
            return _op_column_fields(changes, row)
        case "envelope":
            return dict.fromkeys(_op_by_word(changes.values or Words()), row)


def _op_column_fields(changes: Changes, row: Tree) -> Tree:
    tree: Tree = dict(row) if changes.row is None else {}
    for name, path in {"row": changes.row, "before": changes.before}.items():
        if path is not None:
            _add_field(tree, tuple(path.split(".")), row, f"changes.{name}")
    _add_field(tree, tuple((changes.op or "").split(".")), pa.string(), "changes.op")
    return tree


def routing_field(route: Route | None) -> tuple[str, str] | None:
    """Where a pipeline file names the field that chooses the table, and that field; None if the topic, a header or nothing does."""
    if route is None or route.topic is not None or route.part == "header":
        return None
    if route.static is not None:
        return "route.static.field", route.static.field
    return None if route.field is None else ("route.field.name", route.field.name)
