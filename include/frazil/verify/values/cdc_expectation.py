"""What a record tells of rows that are merged by their key: an own reading of the envelopes, by the promises of docs/changes.md."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from frazil.pipeline.models.changes import FACTS, Changes
from frazil.pipeline.models.pipeline_file import Destination, Pipeline, Value
from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.types import ColumnType, Primitive
from frazil.verify.values.column_readers import Bad, ColumnReaders
from frazil.verify.values.evolved_schema import grows, without_empties
from frazil.verify.values.json_document import Figure, Unfit, decoder_of, object_of

Op = Literal["upsert", "delete", "truncate"]
Row = dict[str, Any]


Fields: TypeAlias = Collection[str]
"""Fields of a row that columns take."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """What happens, the row as it is (of a deleted one: as it was), what is known of it before, the facts, all images, and
    fields of the row that were not sent.
    """

    op: Op | None
    row: Row | None
    before: Row | None
    facts: Row
    images: tuple[Row | None, ...] = ()
    lost: tuple[str, ...] = ()


def _debezium(body: Row, _changes: Changes, _fields: Fields) -> Iterator[Change]:
    ops: dict[str, Op | None] = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete", "t": "truncate", "m": None}
    op = _word(body.get("op"), ops)
    after, before = _object(body, "after"), _object(body, "before")
    source = _object(body, "source") or {}
    facts = {"op": body["op"], "ts": _instant(body.get("ts_ms"), 1), "order": _log_place(source)}
    row, lost = (None, ()) if after is None else _sent(after, before or {})
    yield Change(
        op, before if op == "delete" else row, before if op == "upsert" else None, facts, (after, before), lost
    )


_UNAVAILABLE = "__debezium_unavailable_value"
_NUMBERS = [str(of) for of in _UNAVAILABLE.encode()]
_NOT_SENT = (
    _UNAVAILABLE,
    f'{{"{_UNAVAILABLE}":"{_UNAVAILABLE}"}}',
    b64encode(_UNAVAILABLE.encode()).decode(),
    [_UNAVAILABLE],
    f'["{_UNAVAILABLE}"]',
    _NUMBERS,
    f"[{','.join(_NUMBERS)}]",
)
"""What stands for a text, hstore, bytes, and lists of texts and of numbers; each list also as the text that a column takes."""


def _sent(after: Row, before: Row) -> tuple[Row, tuple[str, ...]]:
    """The row with large values that Postgres left out as they were, and the names of those that nothing tells."""
    row = {name: before.get(name) if of in _NOT_SENT else of for name, of in after.items()}
    left_out = (name for name, of in after.items() if of in _NOT_SENT)
    return row, tuple(name for name in left_out if row[name] is None or row[name] in _NOT_SENT)


def _log_place(source: Row) -> str | None:
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
                [_padded(source[first]), *("" if source.get(of) is None else _padded(source[of]) for of in more)]
            )
    return None


def _padded(value: Any) -> str:
    text = str(value)
    return text.rjust(20, "0") if re.fullmatch("[0-9]+", text) else text


def _dms(body: Row, _changes: Changes, fields: Fields) -> Iterator[Change]:
    meta = _object(body, "metadata") or {}
    require_texts(meta, "operation", "record-type", "schema-name", "table-name", "timestamp")
    ops: dict[str, Op | None] = dict.fromkeys(("load", "insert", "update"), "upsert")
    ops |= {"delete": "delete", "truncate-table": "truncate"}
    is_control = meta.get("record-type") == "control" and meta.get("operation") not in ops
    op = None if is_control else _word(meta.get("operation"), ops)
    facts = {"op": meta.get("operation"), "ts": meta.get("timestamp"), "order": None}
    row, before = _object(body, "data"), _object(body, "before-image")
    # A column that the table has, or the record itself, is what `BI_` is put before.
    was = {name: value for name in {*(row or {}), *fields} if (value := (row or {}).get(f"BI_{name}")) is not None}
    both = {**was, **{name: of for name, of in (before or {}).items() if of is not None}} if was else before
    yield Change(op, row, both if op == "upsert" else None, facts, (row, before, was))


def _maxwell(body: Row, _changes: Changes, _fields: Fields) -> Iterator[Change]:
    ops: dict[str, Op | None] = dict.fromkeys(("insert", "update", "bootstrap-insert"), "upsert")
    ops |= {"delete": "delete", "bootstrap-start": None, "bootstrap-complete": None}
    ops |= {f"{of}-{what}": None for of in ("table", "database") for what in ("create", "alter", "drop")}
    op = _word(body.get("type"), ops)
    found = re.fullmatch(r"(.+):([0-9]+)", str(body.get("position") or ""))
    offset = body.get("xoffset")
    order = found and f"{found[1]}:{_padded(found[2])}:{'' if offset is None else _padded(offset)}"
    facts = {"op": body["type"], "ts": _instant(body.get("ts"), 1000), "order": order}
    row, before = _object(body, "data"), _object(body, "old")
    yield Change(op, row, before if op == "upsert" else None, facts, (row, before))


def _canal(body: Row, _changes: Changes, _fields: Fields) -> Iterator[Change]:
    ops: dict[str, Op | None] = {"INSERT": "upsert", "UPDATE": "upsert", "DELETE": "delete", "TRUNCATE": "truncate"}
    require_texts(body, "type", "database", "table")
    is_ddl = body.get("isDdl") is True and body.get("type") not in ops
    op = None if is_ddl else _word(body.get("type"), ops)
    facts = {"op": body.get("type"), "ts": _instant(body.get("es"), 1), "order": None}
    rows, old = _list(body, "data"), _list(body, "old")
    if op in (None, "truncate"):
        yield Change(op, None, None, facts, (*rows, *old))
        return
    if not rows or (body.get("old") is not None and len(old) != len(rows)):
        raise Unfit("a statement without rows, or not as many before as after")
    for row, before in zip(rows, old or [None] * len(rows), strict=True):
        yield Change(op, row, before if op == "upsert" else None, facts, (row, before))


def _list(body: Row, name: str) -> list[Row | None]:
    found = body.get(name)
    if found is not None and not isinstance(found, list):
        raise Unfit("rows that are no list")
    return [_row(of) for of in found or ()]


def _op_column(body: Row, changes: Changes, _fields: Fields) -> Iterator[Change]:
    sent = _at(body, changes.op or "")
    op = _word(sent, _words(changes))
    row = body if changes.row is None else _row(_at(body, changes.row))
    before = None if changes.before is None else _row(_at(body, changes.before))
    gone = row if before is None else before
    facts = {"op": sent, "ts": None, "order": None}
    yield Change(op, gone if op == "delete" else row, before if op == "upsert" else None, facts, (row, before))


def _envelope(body: Row, changes: Changes, _fields: Fields) -> Iterator[Change]:
    words = _words(changes)
    found = [name for name in words if body.get(name) is not None]
    if len(found) != 1:
        raise Unfit("not one row")
    facts = {"op": found[0], "ts": None, "order": None}
    yield Change(words[found[0]], body[found[0]], None, facts, tuple(_object(body, name) for name in words))


READERS: Mapping[str, Callable[[Row, Changes, Fields], Iterator[Change]]] = {
    "debezium": _debezium,
    "dms": _dms,
    "maxwell": _maxwell,
    "canal": _canal,
    "op_column": _op_column,
    "envelope": _envelope,
}
"""By format: the changes that a record tells of, in its order."""


def _words(changes: Changes) -> Mapping[str, Op | None]:
    found: dict[str, Op | None] = {}
    if changes.values is not None:
        found |= dict.fromkeys((*changes.values.insert, *changes.values.update), "upsert")
        found |= dict.fromkeys(changes.values.delete, "delete")
        found |= dict.fromkeys(changes.values.truncate, "truncate")
    return found


def _word(sent: Any, ops: Mapping[str, Op | None]) -> Op | None:
    if type(sent) is not str or sent not in ops:
        raise Unfit("an unknown op")
    return ops[sent]


def require_texts(body: Row, *names: str) -> None:
    """A number where a text must be makes the record unfit, also where it would not count."""
    if any(isinstance(body.get(name), bool | Figure) for name in names):
        raise Unfit("not a text")


def _at(body: Row, path: str) -> Any:
    here: Any = body
    for step in path.split("."):
        if here is None:
            return None
        here = _row(here)
        here = None if here is None else here.get(step)
    return here


def _row(found: Any) -> Row | None:
    if found is not None and not isinstance(found, dict):
        raise Unfit("a row that is no object")
    return found


def _object(body: Row, name: str) -> Row | None:
    return _row(body.get(name))


def _instant(number: Any, milliseconds: int) -> str | None:
    """A number since 1970 as a text that times are read from."""
    if number is None:
        return None
    if type(number) is not Figure or not re.fullmatch("-?[0-9]+", number):
        raise Unfit("no time")
    try:
        return (_EPOCH + timedelta(milliseconds=int(number) * milliseconds)).isoformat()
    except OverflowError as error:
        raise Unfit("no time") from error


_NUMBER_TEXT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_COUNTED = {"int", "long", "float", "double", "decimal"}


def unread_changes(pipeline: Pipeline, destination: Destination) -> Iterator[str]:
    """Why what records tell of a merged table can't be worked out anew."""
    if destination.changes is not None:
        value = pipeline.value
        if isinstance(value.fields, dict):
            yield "value.fields says what changes hold"
        if value.casts != "none" or value.field_names != "exact":
            yield "value.casts or value.field_names changes what envelopes mean"


@dataclass(frozen=True, slots=True)
class RowChange:
    """What a record tells of one row, in canonical values.

    Attributes:
        op: What happens to it.
        key: Its key; none of a truncate.
        order: The value of the column of `order_by`, if there is one.
        row: All values of an upsert; else the key, the order and facts about the change, and null for all others.
    """

    op: Op
    key: tuple[Any, ...] = ()
    order: Any = None
    row: tuple[Any, ...] = ()


class ChangeReader:
    """Reads what records tell; takes the place of an expectation of rows.

    Args:
        destination: The table that rows are merged into.
        columns: Those of it that are compared.
        value: What the pipeline file says of values.

    Raises:
        Terminal: A default is no value of its column.
    """

    def __init__(self, destination: Destination, columns: Mapping[str, Column], value: Value) -> None:
        self._of = destination
        self._is_grown = grows(destination)
        self._names = tuple(columns)
        self._takers = ColumnReaders(columns, value, in_orc=destination.file_format == "orc")
        self._decoder = decoder_of(
            once=value.duplicate_keys == "dead_letter", any_case=value.field_names == "case_insensitive"
        )
        optional = {name: of.model_copy(update={"required": False}) for name, of in columns.items()}
        self._loose = ColumnReaders(optional, value)
        paths = {name: of.source or (name,) for name, of in columns.items()}
        self._fields = frozenset(path[0] for path in paths.values())
        self._types = {path[0]: columns[name].parsed for name, path in paths.items() if len(path) == 1}
        self._is_fact = [(of.source or ())[:1] == (FACTS,) for of in columns.values()]
        # Elsewhere a field of that name is the record's own.
        self._takes_facts = destination.changes is not None and any(self._is_fact)

    def row(self, raw: bytes) -> tuple[RowChange, ...] | Bad:
        """What a value tells, in the order in which it is applied; nothing if it is of no row."""
        try:
            whole = object_of(raw, self._decoder)
            changes = self._of.changes
            if changes is None:
                return (self._upsert(whole, {}),)
            told = [
                of
                for change in READERS[changes.format](whole, changes, self._fields)
                for of in self._told(change, changes)
            ]
        except Unfit as unfit:
            return Bad(str(unfit))
        return tuple(sorted(told, key=lambda of: of.op == "upsert"))

    def cells(self, _raw: bytes) -> tuple[Any, ...] | Bad:
        """Other files are not known."""
        return Bad("another file")

    def _told(self, change: Change, changes: Changes) -> Iterator[RowChange]:
        for image in change.images:
            if not self._is_grown:
                self._readable(image or {}, changes)
            elif change.op in {"upsert", "delete"}:
                self._readable_key(self._typed(image or {}, changes))
        if change.op == "truncate":
            yield RowChange("truncate", (), self._order({}, change.facts), self._bare((), {}, change.facts))
        elif change.op is not None:
            if change.row is None:
                raise Unfit("a change without its row")
            row, before = (self._typed(of, changes) for of in (change.row, change.before or {}))
            if change.op == "delete":
                key = self._key(row, change.facts)
                yield RowChange("delete", key, self._order(row, change.facts), self._bare(key, row, change.facts))
                return
            self._whole(change, change.row, changes)
            upsert = self._upsert(row, change.facts)
            was = {**row, **{name: of for name, of in before.items() if of is not None}}
            if change.before is not None and (old := self._key(was, change.facts)) != upsert.key:
                yield RowChange("delete", old, upsert.order, self._bare(old, row, change.facts))
            yield upsert

    def _whole(self, change: Change, row: Row, changes: Changes) -> None:
        """A row as it is now has all that columns take."""
        if self._fields.intersection(change.lost):
            raise Unfit("a value that was not sent")
        if self._is_grown and changes.format == "canal":
            require_texts(row, *self._types)

    def _readable(self, image: Row, changes: Changes) -> None:
        """A field of an image that is not what its column takes makes the record unfit, also where it does not count.

        Not so where records bring columns: of other images only the key is looked at.
        """
        if changes.format == "canal":  # all of it text, of which only what counts must be what its column takes
            require_texts(image, *self._types)
            return
        document = self._loose.document(image)
        for take, is_fact in zip(self._loose.takes, self._is_fact, strict=True):
            if not is_fact:
                take(document)

    def _readable_key(self, image: Row) -> None:
        """Where records bring columns, the key and the order of an image are all that must be what their columns take."""
        document = self._loose.document(image)
        needed = {*self._of.identifier, self._of.order_by}
        for name, take, is_fact in zip(self._names, self._loose.takes, self._is_fact, strict=True):
            if name in needed and not is_fact:
                take(document)

    def _typed(self, row: Row, changes: Changes) -> Row:
        """Canal sends all values as text."""
        if changes.format != "canal":
            return row
        return {name: _figure(of, self._types[name]) if name in self._types else of for name, of in row.items()}

    def _document(self, row: Row, facts: Row) -> Any:
        return self._takers.document({**row, FACTS: facts} if self._takes_facts else row)

    def _upsert(self, row: Row, facts: Row) -> RowChange:
        document = self._document(row, facts)
        values = tuple([take(document) for take in self._takers.takes])
        values = tuple(map(without_empties, values)) if self._is_grown else values
        found = dict(zip(self._names, values, strict=True))
        key = tuple([found[name] for name in self._of.identifier])
        order = None if self._of.order_by is None else found[self._of.order_by]
        if self._of.order_by is not None and order is None:
            raise Unfit("a change without order")
        return RowChange("upsert", key, order, values)

    def _bare(self, key: tuple[Any, ...], row: Row, facts: Row) -> tuple[Any, ...]:
        """Values of a row of which not much is known any more."""
        document, found = (
            self._document(row, facts),
            dict(zip(self._of.identifier, key, strict=False)),
        )
        told = zip(self._names, self._takers.takes, self._is_fact, strict=True)
        return tuple(
            [
                take(document) if is_fact or name == self._of.order_by else found.get(name)
                for name, take, is_fact in told
            ]
        )

    def _key(self, row: Row, facts: Row) -> tuple[Any, ...]:
        return tuple([self._one(name, row, facts) for name in self._of.identifier])

    def _order(self, row: Row, facts: Row) -> Any:
        return None if self._of.order_by is None else self._one(self._of.order_by, row, facts)

    def _one(self, name: str, row: Row, facts: Row) -> Any:
        found = self._takers.takes[self._names.index(name)](self._document(row, facts))
        if found is None:
            raise Unfit(f"no {name}")
        return found


def _figure(value: Any, of: ColumnType) -> Any:
    if type(value) is not str or not isinstance(of, Primitive):
        return value
    if of.name in _COUNTED and _NUMBER_TEXT.fullmatch(value):
        return Figure(value)
    return {"true": True, "false": False}.get(value, value) if of.name == "boolean" else value
