"""Reads the row changes that a record describes, by the promises of docs/changes.md and not by the code that writes."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from frazil.pipeline.models.layout import FACTS, Changes
from frazil.pipeline.models.pipeline_file import Destination, Pipeline, Value
from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.types import ColumnType, Primitive
from frazil.verify.values.canonical import null_empty_values
from frazil.verify.values.column_readers import Bad, ColumnReaders, has_undeclared_columns
from frazil.verify.values.json_document import EPOCH, NumberText, Unfit, decoder_of, object_of
from frazil.verify.values.readers import NUMBER, NUMERIC

Op = Literal["upsert", "delete", "truncate"]
Row = dict[str, Any]

Fields: TypeAlias = Collection[str]
"""Names of the fields of a row that columns read."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change in a record.

    Attributes:
        op: Upsert, delete or truncate; None if the change concerns no row.
        row: The row after an upsert, or before a delete.
        before: The known fields of the row before an upsert.
        facts: Operation, time and order of the change, for columns that take them.
        images: All row images of the change, also those that don't decide the row.
        lost: Fields of the row whose values were not sent and are unknown.
    """

    op: Op | None
    row: Row | None
    before: Row | None
    facts: Row
    images: tuple[Row | None, ...] = ()
    lost: tuple[str, ...] = ()


def _debezium(body: Row, _changes: Changes, _fields: Fields) -> Iterator[Change]:
    ops: dict[str, Op | None] = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete", "t": "truncate", "m": None}
    op = _op_of_word(body.get("op"), ops)
    after, before = _row_in_field(body, "after"), _row_in_field(body, "before")
    source = _row_in_field(body, "source") or {}
    facts = {"op": body["op"], "ts": _instant(body.get("ts_ms"), 1), "order": _log_position(source)}
    row, lost = (None, ()) if after is None else _with_unchanged_values(after, before or {})
    yield Change(
        op, before if op == "delete" else row, before if op == "upsert" else None, facts, (after, before), lost
    )


_UNAVAILABLE = "__debezium_unavailable_value"
_NUMBERS = [str(byte) for byte in _UNAVAILABLE.encode()]
_NOT_SENT = (
    _UNAVAILABLE,
    f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}',
    b64encode(_UNAVAILABLE.encode()).decode(),
    _UNAVAILABLE.encode(),
    [_UNAVAILABLE],
    f'["{_UNAVAILABLE}"]',
    _NUMBERS,
    [*_UNAVAILABLE.encode()],
    f"[{','.join(_NUMBERS)}]",
)
"""Debezium's placeholders of unsent values: text, hstore, bytes, lists of texts and numbers; each list also as JSON text."""


def _with_unchanged_values(after: Row, before: Row) -> tuple[Row, tuple[str, ...]]:
    """The row with unsent large values taken from the row before, and the names of those that are unknown there, too."""
    row = {name: before.get(name) if value in _NOT_SENT else value for name, value in after.items()}
    unsent = (name for name, value in after.items() if value in _NOT_SENT)
    return row, tuple(name for name in unsent if row[name] is None or row[name] in _NOT_SENT)


def _log_position(source: Row) -> str | None:
    paths = (
        ("lsn",),
        ("file", "pos", "row"),
        ("change_lsn", "event_serial_no"),
        ("commit_lsn",),
        ("commit_scn", "scn"),
        ("scn", "scn"),
        ("ts_ms", "ord"),
    )
    for first, *more in paths:
        if source.get(first) is not None:
            return ":".join(
                [_padded(source[first]), *("" if source.get(name) is None else _padded(source[name]) for name in more)]
            )
    return None


def _padded(value: Any) -> str:
    text = str(value)
    return text.rjust(20, "0") if re.fullmatch("[0-9]+", text) else text


def _dms(body: Row, _changes: Changes, fields: Fields) -> Iterator[Change]:
    meta = _row_in_field(body, "metadata") or {}
    require_texts(meta, "operation", "record-type", "schema-name", "table-name", "timestamp")
    ops: dict[str, Op | None] = dict.fromkeys(("load", "insert", "update"), "upsert")
    ops |= {"delete": "delete", "truncate-table": "truncate"}
    is_control = meta.get("record-type") == "control" and meta.get("operation") not in ops
    op = None if is_control else _op_of_word(meta.get("operation"), ops)
    facts = {"op": meta.get("operation"), "ts": meta.get("timestamp"), "order": None}
    row, before = _row_in_field(body, "data"), _row_in_field(body, "before-image")
    # DMS may send the row before as further fields, with `BI_` before the names of the record's or the table's columns.
    prefixed = {name: value for name in {*(row or {}), *fields} if (value := (row or {}).get(f"BI_{name}")) is not None}
    present = {name: cell for name, cell in (before or {}).items() if cell is not None}
    former_row = {**prefixed, **present} if prefixed else before
    yield Change(op, row, former_row if op == "upsert" else None, facts, (row, before, prefixed))


def _maxwell(body: Row, _changes: Changes, _fields: Fields) -> Iterator[Change]:
    ops: dict[str, Op | None] = dict.fromkeys(("insert", "update", "bootstrap-insert"), "upsert")
    ops |= {"delete": "delete", "bootstrap-start": None, "bootstrap-complete": None}
    ops |= {f"{kind}-{verb}": None for kind in ("table", "database") for verb in ("create", "alter", "drop")}
    op = _op_of_word(body.get("type"), ops)
    match = re.fullmatch(r"(.+):([0-9]+)", str(body.get("position") or ""))
    offset = body.get("xoffset")
    order = match and f"{match[1]}:{_padded(match[2])}:{'' if offset is None else _padded(offset)}"
    facts = {"op": body["type"], "ts": _instant(body.get("ts"), 1000), "order": order}
    row, before = _row_in_field(body, "data"), _row_in_field(body, "old")
    yield Change(op, row, before if op == "upsert" else None, facts, (row, before))


def _canal(body: Row, _changes: Changes, _fields: Fields) -> Iterator[Change]:
    ops: dict[str, Op | None] = {"INSERT": "upsert", "UPDATE": "upsert", "DELETE": "delete", "TRUNCATE": "truncate"}
    require_texts(body, "type", "database", "table")
    is_ddl = body.get("isDdl") is True and body.get("type") not in ops
    op = None if is_ddl else _op_of_word(body.get("type"), ops)
    facts = {"op": body.get("type"), "ts": _instant(body.get("es"), 1), "order": None}
    rows, old = _rows_in_field(body, "data"), _rows_in_field(body, "old")
    if op in (None, "truncate"):
        yield Change(op, None, None, facts, (*rows, *old))
        return
    if not rows or (body.get("old") is not None and len(old) != len(rows)):
        raise Unfit("a statement without rows, or not as many before as after")
    for row, before in zip(rows, old or [None] * len(rows), strict=True):
        yield Change(op, row, before if op == "upsert" else None, facts, (row, before))


def _rows_in_field(body: Row, name: str) -> list[Row | None]:
    rows = body.get(name)
    if rows is not None and not isinstance(rows, list):
        raise Unfit("rows that are no list")
    return [_require_row(row) for row in rows or ()]


def _op_column(body: Row, changes: Changes, _fields: Fields) -> Iterator[Change]:
    op_word = _value_at(body, changes.op or "")
    op = _op_of_word(op_word, _op_per_word(changes))
    row = body if changes.row is None else _require_row(_value_at(body, changes.row))
    before = None if changes.before is None else _require_row(_value_at(body, changes.before))
    deleted_row = row if before is None else before
    facts = {"op": op_word, "ts": None, "order": None}
    yield Change(op, deleted_row if op == "delete" else row, before if op == "upsert" else None, facts, (row, before))


def _envelope(body: Row, changes: Changes, _fields: Fields) -> Iterator[Change]:
    words = _op_per_word(changes)
    names = [name for name in words if body.get(name) is not None]
    if len(names) != 1:
        raise Unfit("not one row")
    facts = {"op": names[0], "ts": None, "order": None}
    yield Change(words[names[0]], body[names[0]], None, facts, tuple(_row_in_field(body, name) for name in words))


READERS: Mapping[str, Callable[[Row, Changes, Fields], Iterator[Change]]] = {
    "debezium": _debezium,
    "dms": _dms,
    "maxwell": _maxwell,
    "canal": _canal,
    "op_column": _op_column,
    "envelope": _envelope,
}
"""Format -> function that yields the changes in a record, in their order."""


def _op_per_word(changes: Changes) -> Mapping[str, Op | None]:
    ops: dict[str, Op | None] = {}
    if changes.values is not None:
        ops |= dict.fromkeys((*changes.values.insert, *changes.values.update), "upsert")
        ops |= dict.fromkeys(changes.values.delete, "delete")
        ops |= dict.fromkeys(changes.values.truncate, "truncate")
    return ops


def _op_of_word(word: Any, ops: Mapping[str, Op | None]) -> Op | None:
    if type(word) is not str or word not in ops:
        raise Unfit("an unknown op")
    return ops[word]


def require_texts(body: Row, *names: str) -> None:
    """Refuse a number or boolean in a field that must be text, even if no column reads the field."""
    if any(isinstance(body.get(name), bool | NumberText) for name in names):
        raise Unfit("not a text")


def _value_at(body: Row, path: str) -> Any:
    value: Any = body
    for step in path.split("."):
        if value is None:
            return None
        value = _require_row(value)
        value = None if value is None else value.get(step)
    return value


def _require_row(value: Any) -> Row | None:
    if value is not None and not isinstance(value, dict):
        raise Unfit("a row that is no object")
    return value


def _row_in_field(body: Row, name: str) -> Row | None:
    return _require_row(body.get(name))


def _instant(number: Any, milliseconds: int) -> str | None:
    """A time since 1970, in units of so many milliseconds, as ISO text for time columns; None if no such column can hold it."""
    if number is None:
        return None
    if type(number) not in (NumberText, int) or not re.fullmatch("-?[0-9]+", str(number)):
        raise Unfit("no time")
    if not -(2**63) <= int(number) < 2**63:
        raise Unfit("no long")
    if not -_MOST_MILLISECONDS <= int(number) * milliseconds <= _MOST_MILLISECONDS:
        return None
    try:
        return (EPOCH + timedelta(milliseconds=int(number) * milliseconds)).isoformat()
    except OverflowError as error:
        raise Unfit("no time") from error


_MOST_MILLISECONDS = 2**63 // 1_000 - 1
"""Largest distance from 1970 of a time that a time column can hold."""


def change_reasons(pipeline: Pipeline, destination: Destination) -> Iterator[str]:
    """Why the changes in records of a merged table can't be derived here."""
    if destination.changes is not None:
        value = pipeline.value
        if value.fields is not None:
            yield "value.fields declares the fields of changes"
        if (value.casts != "none" and value.format == "json") or value.field_names != "exact":
            yield "value.casts or value.field_names changes what envelopes mean"


@dataclass(frozen=True, slots=True)
class RowChange:
    """The change of one row, in canonical values.

    Attributes:
        op: Upsert, delete or truncate.
        key: Key of the row; empty for a truncate.
        order: The value of the `order_by` column, if there is one.
        row: All values of an upsert; of a delete or truncate only key, order and facts about the change, and null otherwise.
    """

    op: Op
    key: tuple[Any, ...] = ()
    order: Any = None
    row: tuple[Any, ...] = ()


class ChangeReader:
    """Reads the row changes in records.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(self, destination: Destination, columns: Mapping[str, Column], value: Value) -> None:
        self._destination = destination
        self._is_grown = has_undeclared_columns(destination)
        self._names = tuple(columns)
        self._column_readers = ColumnReaders(columns, value, in_orc=destination.file_format == "orc")
        self._decoder = decoder_of(
            once=value.duplicate_keys == "dead_letter", any_case=value.field_names == "case_insensitive"
        )
        optional = {name: column.model_copy(update={"required": False}) for name, column in columns.items()}
        self._nullable_readers = ColumnReaders(optional, value)
        paths = {name: column.source or (name,) for name, column in columns.items() if column.part != "header"}
        order_by = None if destination.order_by not in paths else destination.order_by
        self._order_by = order_by  # None also if it is a header
        self._fields = frozenset(path[0] for path in paths.values())
        self._types = {path[0]: columns[name].parsed for name, path in paths.items() if len(path) == 1}
        self._checks_images = not self._is_grown
        """Whether all columns of all row images are checked, also of images that don't decide the row."""
        self._is_fact = [(column.source or ())[:1] == (FACTS,) for column in columns.values()]
        # Without `changes`, a field of that name is the record's own.
        self._takes_facts = destination.changes is not None and any(self._is_fact)

    def row(self, raw: bytes) -> tuple[RowChange, ...] | Bad:
        """The row changes in a value, deletes first; none if it changes no row."""
        try:
            return self.changes_in(object_of(raw, self._decoder))
        except Unfit as unfit:
            return Bad(str(unfit))

    def changes_in(self, whole: Row) -> tuple[RowChange, ...]:
        """The row changes in the fields of a value, deletes first.

        Raises:
            Unfit: It must be a dead letter.
        """
        changes = self._destination.changes
        if changes is None:
            return (self._upsert(whole, {}),)
        row_changes = [
            row_change
            for change in READERS[changes.format](whole, changes, self._fields)
            for row_change in self._row_changes(change, changes)
        ]
        return tuple(sorted(row_changes, key=lambda row_change: row_change.op == "upsert"))

    def cells(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """Not known for other pipeline files."""
        return Bad("another file")

    def _row_changes(self, change: Change, changes: Changes) -> Iterator[RowChange]:
        for image in change.images:
            if self._checks_images or change.op in {"upsert", "delete"}:
                self._require_readable(image or {}, changes)
        if change.op == "truncate":
            yield RowChange("truncate", (), self._order({}, change.facts), self._sparse_row((), {}, change.facts))
        elif change.op is not None:
            if change.row is None:
                raise Unfit("a change without its row")
            row, before = (self._typed(image, changes) for image in (change.row, change.before or {}))
            if change.op == "delete":
                key = self._key(row, change.facts)
                yield RowChange("delete", key, self._order(row, change.facts), self._sparse_row(key, row, change.facts))
                return
            self._require_whole_row(change, change.row, changes)
            upsert = self._upsert(row, change.facts)
            former = {**row, **{name: value for name, value in before.items() if value is not None}}
            if change.before is not None and (former_key := self._key(former, change.facts)) != upsert.key:
                yield RowChange("delete", former_key, upsert.order, self._sparse_row(former_key, row, change.facts))
            yield upsert

    def _require_whole_row(self, change: Change, row: Row, changes: Changes) -> None:
        """Refuse a row image without values that columns need."""
        if self._fields.intersection(change.lost):
            raise Unfit("a value that was not sent")
        if self._is_grown and changes.format == "canal":
            require_texts(row, *self._types)

    def _require_readable(self, image: Row, changes: Changes) -> None:
        """Refuse a field of an image that does not fit its column, also where the image does not decide the row.

        If records may add columns, only key and order of such images are checked, because other fields may fit no column.
        """
        if not self._checks_images:
            needed, image = {*self._destination.identifier, self._order_by}, self._typed(image, changes)
        elif (
            changes.format == "canal"
        ):  # sends all values as text; whether a text fits is checked only in images that decide
            require_texts(image, *self._types)
            return
        else:
            needed = {*self._names}
        document, readers = self._nullable_readers.document(image), self._nullable_readers.cell_readers
        for name, read_cell, is_fact in zip(self._names, readers, self._is_fact, strict=True):
            if name in needed and not is_fact:
                read_cell(document)

    def _typed(self, row: Row, changes: Changes) -> Row:
        """The row with values converted from text, for Canal, which sends all values as text."""
        if changes.format != "canal":
            return row
        return {
            name: _from_text(value, self._types[name]) if name in self._types else value for name, value in row.items()
        }

    def _document(self, row: Row, facts: Row) -> Any:
        return self._column_readers.document({**row, FACTS: facts} if self._takes_facts else row)

    def _upsert(self, row: Row, facts: Row) -> RowChange:
        document = self._document(row, facts)
        values = tuple([read_cell(document) for read_cell in self._column_readers.cell_readers])
        values = tuple(map(null_empty_values, values)) if self._is_grown else values
        cells = dict(zip(self._names, values, strict=True))
        key = tuple([cells[name] for name in self._destination.identifier])
        order = None if self._order_by is None else cells[self._order_by]
        if self._order_by is not None and order is None:
            raise Unfit("a change without order")
        return RowChange("upsert", key, order, values)

    def _sparse_row(self, key: tuple[Any, ...], row: Row, facts: Row) -> tuple[Any, ...]:
        """Values of a deleted row: its key, its order and the facts of the change, and null for all others."""
        document, key_cells = self._document(row, facts), dict(zip(self._destination.identifier, key, strict=False))
        columns = zip(self._names, self._column_readers.cell_readers, self._is_fact, strict=True)
        return tuple(
            read_cell(document) if is_fact or name == self._order_by else key_cells.get(name)
            for name, read_cell, is_fact in columns
        )

    def _key(self, row: Row, facts: Row) -> tuple[Any, ...]:
        return tuple([self._cell(name, row, facts) for name in self._destination.identifier])

    def _order(self, row: Row, facts: Row) -> Any:
        return None if self._order_by is None else self._cell(self._order_by, row, facts)

    def _cell(self, name: str, row: Row, facts: Row) -> Any:
        cell = self._column_readers.cell_readers[self._names.index(name)](self._document(row, facts))
        if cell is None:
            raise Unfit(f"no {name}")
        return cell


def _from_text(value: Any, column_type: ColumnType) -> Any:
    if type(value) is not str or not isinstance(column_type, Primitive):
        return value
    if column_type.name in NUMERIC and NUMBER.fullmatch(value):
        return NumberText(value)
    return {"true": True, "false": False}.get(value, value) if column_type.name == "boolean" else value
