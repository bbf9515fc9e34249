"""Transforms that replace the envelope of a change event by its row, with facts about the change: DebeziumTransform and
DmsTransform of the Iceberg sink, ExtractNewRecordState of Debezium.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from frazil.error_codes import FIELDS_UNFIT
from frazil.records import pa, pc
from frazil.records.model.column import type_name
from frazil.records.model.dead_letter import Reason
from frazil.records.model.format import BARE, Column, Columns, Frame, MissingField, Transformed
from frazil.records.transforms.definition import SINK, ConnectClass, TransformDefinition, option
from frazil.records.transforms.fields import (
    batch_of,
    describe_value,
    failure,
    find,
    lacking,
    reject_all,
    select,
    typed_field,
)
from frazil.records.transforms.kinds.nested import children

RowCheck = tuple["pa.BooleanArray", str, str]
"""The outcome of a check: mask of the rows that fail, without nulls; the message; and the path of the field."""


def failures(
    checks: Iterable[RowCheck], rows_to_check: pa.BooleanArray | None = None, values: pa.Array | None = None
) -> dict[int, Reason]:
    """Return, by row, the reason of the first check that fails.

    Args:
        checks: Their messages may end in `found {}`.
        rows_to_check: Mask of the rows that are checked; None: all rows.
        values: Per row, the value that replaces `{}` in a message.
    """
    failed: dict[int, Reason] = {}
    for mask, message, path in checks:
        rows = pc.indices_nonzero(mask if rows_to_check is None else pc.and_(mask, rows_to_check))
        for row in rows.to_pylist():
            text = message if values is None else message.replace("{}", _describe(values[row].as_py()))
            failed.setdefault(row, failure(text, path))
    return failed


def _describe(value: object) -> str:
    return "null" if value is None else describe_value(value)


def choose_image(name: str, after: Columns, before: Columns, takes_before: pa.BooleanArray) -> Columns:
    """Merge the images of rows before and after their changes: the one before if `takes_before` is true, else the one after.

    Raises:
        Terminal: A field has different types in the two images.
    """
    if not before:
        return after
    return {
        field_name: _merge_images(name, field_name, after.get(field_name), before.get(field_name), takes_before)
        for field_name in {**after, **before}
    }


def _merge_images(
    name: str, field: str, after: Column | None, before: Column | None, takes_before: pa.BooleanArray
) -> Column:
    image = after or before
    if image is None:
        raise AssertionError(field)
    declared, values = image
    nulls: Column = (declared.with_nullable(nullable=True), pa.nulls(len(values), declared.type))
    (old, old_values), (new, new_values) = _with_common_type(before or nulls, after or nulls)
    if old.type != new.type:
        raise FIELDS_UNFIT.terminal(
            f"{name}: expected one type of field {field}, found {type_name(old.type)} before and {type_name(new.type)} after",
            next_step="declare the rows of before and after with the same fields",
        )
    size = len(takes_before)
    # `if_else` does not take uuids. In one array of both images, the row before a change is `size` after the row after it.
    stacked = pa.concat_arrays([new_values, old_values])
    row_offset = pc.if_else(takes_before, pa.scalar(size, pa.int64()), pa.scalar(0, pa.int64()))
    return new.with_nullable(old.nullable or new.nullable), stacked.take(pc.add(pa.arange(0, size), row_offset))


def _with_common_type(old: Column, new: Column) -> tuple[Column, Column]:
    """Cast two images of an undeclared JSON field to one type: one of them may be null, or an integer instead of a double."""
    (old_field, old_values), (new_field, new_values) = old, new
    if pa.types.is_null(old_field.type) or (pa.types.is_int64(old_field.type) and pa.types.is_float64(new_field.type)):
        return _cast_column(old_field, old_values, new_field.type), new
    if pa.types.is_null(new_field.type) or (pa.types.is_float64(old_field.type) and pa.types.is_int64(new_field.type)):
        return old, _cast_column(new_field, new_values, old_field.type)
    return old, new


def _cast_column(declared: pa.Field, values: pa.Array, data_type: pa.DataType) -> Column:
    try:
        return declared.with_type(data_type), values.cast(data_type)
    except pa.ArrowInvalid:  # a whole number that no double holds
        return declared, values


def text_field(transform: str, fields: pa.RecordBatch, path: str) -> pa.StringArray:
    """Return a text field; only nulls if no field has this name.

    Raises:
        Terminal: The field is no text.
    """
    values = typed_field(transform, fields, path, ("string", "string"))
    return pa.nulls(fields.num_rows, pa.string()) if values is None else values


_MICROS: Final = {"s": 1_000_000, "ms": 1_000}
"""Microseconds of a unit of time."""


def read_instants(
    owner: str, fields: pa.RecordBatch, path: str, unit: str, next_step: str = ""
) -> tuple[pa.TimestampArray, pa.BooleanArray]:
    """Return the instants of a field that contains numbers since 1970, or timestamps; and which of them are out of range.

    Instants out of range are null.

    Raises:
        Terminal: The field is neither.
    """
    values = typed_field(owner, fields, path, ("long", "integer", "timestamp"), next_step)
    timestamp = pa.timestamp("us", "UTC")
    if values is None or pa.types.is_timestamp(values.type):
        instants = pa.nulls(fields.num_rows, timestamp) if values is None else values.cast(timestamp)
        return instants, pa.repeat(value=False, size=fields.num_rows)
    numbers, limit = values.cast(pa.int64()), pa.scalar(2**63 // _MICROS[unit] - 1, pa.int64())
    inside = pc.and_(pc.less_equal(numbers, limit), pc.greater_equal(numbers, pc.negate(limit)))
    micros = pc.multiply(pc.if_else(inside, numbers, None), pa.scalar(_MICROS[unit], pa.int64()))
    return micros.cast(timestamp), pc.fill_null(pc.invert(inside), fill_value=False)


def cdc_struct(columns: Mapping[str, pa.Array]) -> pa.StructArray:
    """Return the struct of the facts about a change, all optional but `op`."""
    fields = [pa.field(name, values.type, nullable=name != "op") for name, values in columns.items()]
    return pa.StructArray.from_arrays(list(columns.values()), fields=fields)


def refuse_field(transform: str, name: str, names: Iterable[str]) -> None:
    """Refuse a row that has itself a field of the name that the transform adds.

    Raises:
        Terminal: The row has such a field.
    """
    if name in names:
        raise FIELDS_UNFIT.terminal(
            f"{transform}: the data already has a field {name}", next_step="choose another name under cdc_field"
        )


_NAME: Final = "DebeziumTransform"
_ROW_OPS: Final = ("c", "r", "u", "d")
_OTHER_OPS: Final = ("t", "m")
_CDC_OPS: Final = {"u": "U", "d": "D"}
_PLACEHOLDER: Final = re.compile(r"(\{db\}|\{table\})")
_NEEDED: Final = (("op",), ("after", "before"), ("source.db", "source.schema"), ("source.table", "source.collection"))
"""Fields that an envelope needs: one of each group."""


@dataclass(frozen=True, slots=True)
class DebeziumTransform(TransformDefinition):
    """Replaces Debezium's envelope by its row and adds a struct about the change.

    The row is `after`, for op `d` `before`. A field that only one of both has exists in all rows, null in rows of the other image.

    The struct has `op` (U for u, D for d, else I), `ts` (timestamp[us, UTC] of `ts_ms`), `offset` (int64, Kafka's), `source`
    (`<schema or db>.<table>`), `target` (by the pattern) and, if keys are decoded, `key`. Envelopes of other events
    (truncate `t`, message `m`) are filtered; one without op, source table or the image of its row fails. With `rewrite`,
    `__deleted` is text, `true` or `false`, as in Debezium's ExtractNewRecordState. A part of the envelope of another type, or a
    field of an added name in the row, ends the run.
    """

    connect_class: ClassVar = ConnectClass(f"{SINK}DebeziumTransform")

    target_pattern: str = option(
        "Text of the struct's `target`, with `{db}` and `{table}`.", "{db}.{table}", key="cdc.target.pattern"
    )
    delete_handling: Literal["none", "drop", "rewrite"] = option(
        "Deleted rows are kept, filtered, or kept with `__deleted` on all rows.", "none", key="delete.handling"
    )
    cdc_field: str = option("Name of the struct about the change.", "_cdc", key="cdc.field", min_length=1)

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the missing parts of an envelope."""
        yield from _missing_parts(frame.value, _NEEDED)

    def apply(self, frame: Frame) -> Transformed:
        """Unwrap the envelopes."""
        op = text_field(_NAME, frame.value, "op")
        deleted = pc.fill_null(pc.equal(op, "d"), fill_value=False)
        before, after = (_image(_NAME, frame.value, name) for name in ("before", "after"))
        # The fields of the result must not depend on the rows of this batch.
        deletions = {} if self.delete_handling == "drop" else before
        columns = list(choose_image(_NAME, after, deletions, deleted).values())
        instants, is_out_of_range = read_instants(_NAME, frame.value, "ts_ms", "ms")
        cdc = self._cdc(frame, op, instants)
        columns += self._added_columns([declared.name for declared, _ in columns], cdc, deleted)
        keeps_row = pc.is_in(op, value_set=pa.array(_ROW_OPS))
        if self.delete_handling == "drop":
            keeps_row = pc.and_not(keeps_row, deleted)
        checks = [
            *_image_checks(_NAME, frame.value, op, deleted),
            (cdc.field("source").is_null(), _NO_SOURCE_TABLE, "source"),
            (is_out_of_range, _TS_OUT_OF_RANGE, "ts_ms"),
        ]
        failed = failures(checks, pc.or_(keeps_row, _is_unknown_op(op)), op)
        changed = frame.with_value(batch_of(columns, len(frame), like=frame.value))
        return select(changed, keeps_row, failed)

    def _added_columns(self, names: list[str], cdc: pa.StructArray, deleted: pa.BooleanArray) -> list[Column]:
        added: list[Column] = [(pa.field(self.cdc_field, cdc.type, nullable=False), cdc)]
        if self.delete_handling == "rewrite":
            deleted_text = pc.if_else(deleted, "true", "false")
            added.append((pa.field("__deleted", deleted_text.type, nullable=False), deleted_text))
        for declared, _ in added:
            refuse_field(_NAME, declared.name, names)
        return added

    def _cdc(self, frame: Frame, op: pa.StringArray, instants: pa.TimestampArray) -> pa.StructArray:
        db = _first_text(frame.value, "source.schema", "source.db")
        table = _first_text(frame.value, "source.table", "source.collection")
        facts = {
            "op": _cdc_op(op, _CDC_OPS),
            "ts": instants,
            "offset": frame.records.column("offset"),
            "source": pc.binary_join_element_wise(db, table, "."),
            "target": _fill_placeholders(self.target_pattern, {"{db}": db, "{table}": table}),
        }
        if frame.key is not None:
            facts["key"] = frame.key.column(0) if frame.key.schema.names == [BARE] else frame.key.to_struct_array()
        return cdc_struct(facts)


_NO_SOURCE_TABLE: Final = f"{_NAME}: expected source.db and source.table, found null or no such field"
_TS_OUT_OF_RANGE: Final = f"{_NAME}: expected ts_ms in milliseconds since 1970, found a number out of range"


def _image_checks(name: str, fields: pa.RecordBatch, op: pa.StringArray, deleted: pa.BooleanArray) -> list[RowCheck]:
    before, after = (_valid(fields, image) for image in ("before", "after"))
    no_before = f"{name}: expected before, the deleted row, found null or no such field"
    no_after = f"{name}: expected after for op {{}}, found null or no such field"
    return [
        (_is_unknown_op(op), f"{name}: expected op as one of c, r, u, d, t, m, found {{}}", "op"),
        (pc.and_not(deleted, before), no_before, "before"),
        (pc.and_not(pc.invert(deleted), after), no_after, "after"),
    ]


def _missing_parts(fields: pa.RecordBatch, needed: Sequence[Sequence[str]]) -> Iterator[MissingField]:
    for alternatives in needed:
        missing = [missing_field for path in alternatives for missing_field in lacking(fields, "", [path], nested=True)]
        if len(missing) == len(alternatives):
            yield missing[0]


def _is_unknown_op(op: pa.StringArray) -> pa.BooleanArray:
    return pc.invert(pc.is_in(op, value_set=pa.array([*_ROW_OPS, *_OTHER_OPS])))


def _cdc_op(values: pa.StringArray, ops: Mapping[str, str]) -> pa.StringArray:
    """Return the `op` of the struct about the change: U or D by the source's operation, else I."""
    return pc.coalesce(*(pc.if_else(pc.equal(values, old), new, None) for old, new in ops.items()), pa.scalar("I"))


def _image(owner: str, fields: pa.RecordBatch, name: str) -> dict[str, Column]:
    """Return the fields of a row's image; a text (a JSON document of MongoDB) is a row of one column."""
    kind, step = ("struct or string", "struct", "string"), f"declare {name} as struct"
    values = typed_field(owner, fields, name, kind, step, nested=False)
    if values is None:
        return {}
    if pa.types.is_string(values.type):
        return {BARE: (pa.field(BARE, values.type), values)}
    # Rows without this image fail, so it adds no nulls to the rows that continue.
    declared = pa.field(name, values.type, nullable=False)
    return {child.name: (child, child_values) for child, child_values in children(declared, values)}


def _valid(fields: pa.RecordBatch, name: str) -> pa.BooleanArray:
    values = find(fields, name, nested=False)
    return pa.repeat(value=False, size=fields.num_rows) if values is None else values.is_valid()


def _first_text(fields: pa.RecordBatch, *paths: str) -> pa.StringArray:
    """Return, per row, the first text that is not null."""
    return pc.coalesce(*(text_field(_NAME, fields, path) for path in paths))


def _fill_placeholders(pattern: str, values: Mapping[str, pa.StringArray]) -> pa.StringArray:
    size = len(next(iter(values.values())))
    parts = [values[part] if part in values else pa.repeat(part, size) for part in _PLACEHOLDER.split(pattern)]
    return pc.binary_join_element_wise(*parts, "")


_UNWRAP: Final = "ExtractNewRecordState"
_ENVELOPE: Final = frozenset({"ts_ms", "ts_us", "ts_ns", "op"})
_TRANSACTION: Final = frozenset({"id", "total_order", "data_collection_order"})
"""Names of facts that are fields of the envelope, and of its `transaction`; all others are fields of its `source`."""


def _lower(text: object) -> object:
    return text.lower() if isinstance(text, str) else text


@dataclass(frozen=True, slots=True)
class ExtractNewRecordState(TransformDefinition):
    """Replaces Debezium's envelope by its row, with facts about the change as fields and headers.

    The row is `after`. A fact is a field of the envelope (`op`, `ts_ms`), of its `source` (`table`, `lsn`) or, with the name of
    another part in front, of that part (`source.ts_ms`, `transaction.id`); `table:origin` gives it another name. A fact that an
    envelope does not have is left out. Truncates (`t`) and messages (`m`) are filtered. Values that are no envelopes continue
    unchanged. An envelope without op or row, or whose row has a field of an added name, fails.
    """

    connect_class: ClassVar = ConnectClass(
        f"io.debezium.transforms.{_UNWRAP}",
        renames={"delete.tombstone.handling.mode": "delete.handling.mode", "add.source.fields": "add.fields"},
    )

    delete_handling: Literal[
        "drop", "none", "tombstone", "delete-to-tombstone", "rewrite", "rewrite-with-tombstone"
    ] = option(
        "Deleted rows are filtered, also where Kafka Connect sends null; with `rewrite` they stay, and all rows get `__deleted`.",
        "drop",
        key="delete.handling.mode",
        form=(_lower, str),
    )
    add_fields: tuple[str, ...] = option("Facts to add as fields.", (), key="add.fields", form="names")
    add_fields_prefix: str = option("Prefix of the names of added fields.", "__", key="add.fields.prefix")
    add_headers: tuple[str, ...] = option("Facts to add as headers.", (), key="add.headers", form="names")
    add_headers_prefix: str = option("Prefix of the names of added headers.", "__", key="add.headers.prefix")

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the missing parts of an envelope."""
        yield from _missing_parts(frame.value, _NEEDED[:2])

    def apply(self, frame: Frame) -> Transformed:
        """Unwrap the envelopes."""
        from frazil.records.transforms.header_lists import append_header
        from frazil.records.transforms.java_casts import header_bytes

        fields = frame.value
        names = fields.schema.names
        if "op" not in names or not {"before", "after"}.intersection(names):
            return Transformed(frame)
        op = text_field(_UNWRAP, fields, "op")
        deleted = pc.fill_null(pc.equal(op, "d"), fill_value=False)
        before, after = (_image(_UNWRAP, fields, name) for name in ("before", "after"))
        keeps_row, rewrites = pc.is_in(op, value_set=pa.array(_ROW_OPS)), self.delete_handling.startswith("rewrite")
        added = dict(_facts(fields, self.add_fields, self.add_fields_prefix))
        if rewrites:
            added["__deleted"] = pc.if_else(deleted, "true", "false")
        else:
            keeps_row = pc.and_not(keeps_row, deleted)
        row = choose_image(_UNWRAP, after, before if rewrites else {}, deleted)
        if (clash := next((name for name in added if name in row), None)) is not None:
            return reject_all(frame, f"{_UNWRAP}: the row has a field {clash} itself: choose another prefix", clash)
        columns = [*row.values(), *((pa.field(name, values.type), values) for name, values in added.items())]
        headers = frame.headers
        for name, values in _facts(fields, self.add_headers, self.add_headers_prefix):
            texts = values.cast(pa.string()) if pa.types.is_null(values.type) else values
            headers = append_header(headers, name, header_bytes(texts))
        failed = failures(_image_checks(_UNWRAP, fields, op, deleted), pc.or_(keeps_row, _is_unknown_op(op)), op)
        changed = frame.with_value(batch_of(columns, len(frame), like=fields))
        return select(replace(changed, headers=headers), keeps_row, failed)


def _facts(fields: pa.RecordBatch, names: Sequence[str], prefix: str) -> Iterator[tuple[str, pa.Array]]:
    """Yield the requested facts that the envelopes have: the new name of each, and its values."""
    for name in names:
        path, _, new_name = name.partition(":")
        part, dot, fact = path.rpartition(".")
        part = part or ("" if fact in _ENVELOPE else "transaction" if fact in _TRANSACTION else "source")
        values = find(fields, f"{part}.{fact}" if part else fact)
        values = find(fields, fact, nested=False) if values is None else values
        if values is not None:
            yield prefix + (new_name or path.replace(dot or ".", "_")), values


_DMS: Final = "DmsTransform"
_DMS_NEEDED: Final = ("data", "metadata", "metadata.schema-name", "metadata.table-name")
"""Fields that an envelope needs."""
_NO_SOURCE: Final = f"{_DMS}: expected metadata.schema-name and metadata.table-name, found null or no such field"


@dataclass(frozen=True, slots=True)
class DmsTransform(TransformDefinition):
    """Replaces the envelope of AWS DMS by its row and adds a struct about the change.

    The row is `data`. The struct has `op` (U for update, D for delete, else I), `ts` (`metadata.timestamp` unchanged) and `source`
    (`<schema-name>.<table-name>`). Records without data or metadata, and those of `record-type: control` (such as the creation of
    a table), are filtered. Data or metadata that is no struct, and a field of the struct's name in the data, end the run.
    """

    connect_class: ClassVar = ConnectClass(
        f"{SINK}DmsTransform",
        note="DmsTransform writes the struct _cdc {op, ts, source}; the sink's early releases wrote _cdc_op and the like.",
    )

    cdc_field: str = option("Name of the struct about the change.", "_cdc", key="cdc.field", min_length=1)

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield the missing parts of an envelope."""
        yield from lacking(frame.value, "", _DMS_NEEDED, nested=True)

    def apply(self, frame: Frame) -> Transformed:
        """Unwrap the changes."""
        data, metadata = (
            typed_field(_DMS, frame.value, name, ("struct", "struct"), nested=False) for name in ("data", "metadata")
        )
        if data is None or metadata is None:
            return select(frame, pa.repeat(value=False, size=len(frame)))
        control = pc.equal(text_field(_DMS, frame.value, "metadata.record-type"), "control")
        keeps_row = pc.and_not(pc.and_(data.is_valid(), metadata.is_valid()), pc.fill_null(control, fill_value=False))
        cdc = _dms_cdc(frame.value)
        failed = failures([(cdc.field("source").is_null(), _NO_SOURCE, "metadata")], keeps_row)
        columns: list[Column] = children(pa.field("data", data.type, nullable=False), data)
        refuse_field(_DMS, self.cdc_field, [declared.name for declared, _ in columns])
        columns.append((pa.field(self.cdc_field, cdc.type, nullable=False), cdc))
        return select(frame.with_value(batch_of(columns, len(frame), like=frame.value)), keeps_row, failed)


def _dms_cdc(fields: pa.RecordBatch) -> pa.StructArray:
    operation = text_field(_DMS, fields, "metadata.operation")
    schema, table = (text_field(_DMS, fields, f"metadata.{name}-name") for name in ("schema", "table"))
    timestamps = find(fields, "metadata.timestamp")
    return cdc_struct(
        {
            "op": _cdc_op(operation, {"update": "U", "delete": "D"}),
            "ts": pa.nulls(fields.num_rows, pa.string()) if timestamps is None else timestamps,
            "source": pc.binary_join_element_wise(schema, table, "."),
        }
    )
