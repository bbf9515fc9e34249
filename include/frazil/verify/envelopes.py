"""Records of other tools, taken apart: what happened, and the images of the row. An own reading, as `told` needs it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

from frazil.pipeline.changes import Changes
from frazil.verify.figures import Figure, Unfit

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
