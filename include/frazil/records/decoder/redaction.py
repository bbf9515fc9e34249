"""Redacts dead letters where payloads are secret: of their records they keep sizes and hashes, or nothing, and of paths only declared
names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from frazil.records.model.dead_letter import DeadCode, Stage
from frazil.records.model.rows import PAYLOAD_HEADER
from frazil.records.model.spec import RecordSpec

# The path of a reason may contain names of fields that nobody declared, and keys of maps. Both come with the data, and may be
# as secret as the values.

HIDDEN: Final = "…"
"""Stands for the hidden key of a map, or for the hidden rest of a path."""

_KEY: Final = "key"
_HEADER: Final = "header"
"""The first steps of paths in keys and in headers."""

_INDEX = re.compile(r"\[\d{1,7}\]")
"""The index of a list's item. No list has more items; a number of more digits may be part of a name."""
_ENTRY = re.compile(r'\["(?:[^"\\]|\\.)*"\]|\[[^\]"{\[]*\]')
"""The key of a map's entry, as JSON: a text, or a number, a boolean or the like."""


@dataclass
class DeclaredNames:
    """The names that are declared for one node of a value: an object, a list or a map.

    Attributes:
        fields: Names of an object's fields -> the names declared below each.
        items: The names declared for a list's items; None if it is no list.
        entries: The names declared for a map's values; None if it is no map.
    """

    fields: dict[str, DeclaredNames] = field(default_factory=dict)
    items: DeclaredNames | None = None
    entries: DeclaredNames | None = None

    @classmethod
    def from_specs(cls, specs: Iterable[RecordSpec]) -> DeclaredNames:
        """Return the names of all tables of a pipeline."""
        value_names = cls()
        for spec in specs:
            key_names = value_names.child([_KEY])
            header_names = value_names.child([_HEADER])
            for column in spec.column_specs:
                is_header, is_key = column.name in spec.of_header, column.name in spec.of_key
                names = header_names if is_header else key_names if is_key else value_names
                names.child(column.steps).add_type(column.type)
            for format_spec, json_fields, names in (
                (spec.format, spec.fields, value_names),
                (spec.key, spec.key_fields, key_names),
            ):
                declared = None if format_spec is None else format_spec.declared_fields(json_fields)
                names.add_type(pa.struct([] if declared is None else list(declared)))
        return value_names

    def visible_path(self, path: str) -> str:
        """Return a path in which the keys of maps are hidden, and all from the first name that is not declared."""
        return "".join(self._steps(path))

    def _steps(self, path: str) -> Iterator[str]:
        names, rest, joint = self, path, ""
        while rest:
            if names.entries is not None and (entry := _ENTRY.match(rest)):
                step, shown, inner = entry[0], f"[{HIDDEN}]", names.entries
            elif names.items is not None and (index := _INDEX.match(rest)):
                step, shown, inner = index[0], index[0], names.items
            else:
                name = names._longest_name(rest)
                if name is None:
                    yield joint + HIDDEN
                    return
                step, shown, inner = name, f"{joint}{name}", names.fields[name]
            yield shown
            names, rest = inner, rest[len(step) :]
            joint = "." if rest.startswith(".") else ""
            rest = rest.removeprefix(".")

    def _longest_name(self, rest: str) -> str | None:
        """Return the longest declared name that the rest of a path begins with."""
        fits = (name for name in self.fields if rest.startswith(name) and rest[len(name) :][:1] in ("", ".", "["))
        return max(fits, key=len, default=None)

    def child(self, steps: Iterable[str]) -> DeclaredNames:
        """Return the node below a chain of names; missing ones are added, with nothing declared."""
        names = self
        for step in steps:
            names = names.fields.setdefault(step, DeclaredNames())
        return names

    def add_type(self, data_type: pa.DataType) -> None:
        """Add the names of a type."""
        if types.is_struct(data_type):
            for each in data_type:
                self.child([each.name]).add_type(each.type)
        elif types.is_list(data_type) or types.is_large_list(data_type):
            self.items = self.items or DeclaredNames()
            self.items.add_type(data_type.value_type)
        elif types.is_map(data_type):
            self.entries = self.entries or DeclaredNames()
            self.entries.add_type(data_type.item_type)


NOTHING_DECLARED: Final = DeclaredNames()


Payload = Literal["full", "redacted", "none"]
"""A dead letter keeps the whole record, or sizes and hashes of its parts, or nothing of it."""

_HASH_BYTES = 16

_UNREAD: Final = frozenset({DeadCode.RECORD_TOO_LARGE, DeadCode.UNREADABLE_BATCH})
"""Codes of letters without their records: there is nothing to hide."""

_MEANINGS = {code.value: code.meaning for code in DeadCode}


def redacted(dead: pa.RecordBatch, payload: Payload, declared: DeclaredNames = NOTHING_DECLARED) -> pa.RecordBatch:
    """Return dead letters (rows of `DEAD_SCHEMA`) with no more of their records than `payload` allows.

    Unless that is `full`, key and value are null, and the message, which may quote the value, becomes the meaning of its code. The
    header `frazil.payload` has the kind of payload as its value. With `redacted` the headers `frazil.key`, `frazil.value` and
    `frazil.headers` have the length in bytes and the BLAKE2b hash (16 bytes, hexadecimal) of each part that the record had; that of
    the headers is over names and values, each behind its length. Paths keep the names that are `declared`, or nothing with `none`.
    """
    if payload == "full" or not dead.num_rows:
        return dead
    size = dead.num_rows
    changed = {
        "message": pa.array([_MEANINGS[code] for code in dead.column("code").to_pylist()], pa.string()),
        "path": _paths(dead, declared) if payload == "redacted" else pa.nulls(size, pa.string()),
        "key": pa.nulls(size, pa.binary()),
        "value": pa.nulls(size, pa.binary()),
        "headers": pa.array(_headers(dead, payload), dead.schema.field("headers").type),
    }
    columns = [changed.get(field.name, dead.column(field.name)) for field in dead.schema]
    return pa.RecordBatch.from_arrays(columns, schema=dead.schema)


def _paths(dead: pa.RecordBatch, declared: DeclaredNames) -> pa.StringArray:
    """Return the visible part of each path. The path of a routing field is visible: it comes from the pipeline file."""
    rows = zip(dead.column("path").to_pylist(), dead.column("stage").to_pylist(), strict=True)
    return pa.array(
        [path if path is None or stage == Stage.ROUTE else declared.visible_path(path) for path, stage in rows],
        pa.string(),
    )


def has_record(letters: pa.RecordBatch) -> pa.BooleanArray:
    """Return which letters (columns `key`, `value`, `headers`) hold their record, so that they can be decoded again.

    A letter without key and value whose first header is `frazil.payload` does not.
    """
    bare = pc.and_(letters.column("key").is_null(), letters.column("value").is_null())
    marked = [
        bool(headers) and headers[0]["key"] == PAYLOAD_HEADER for headers in letters.column("headers").to_pylist()
    ]
    return pc.invert(pc.and_(bare, pa.array(marked, pa.bool_())))


def _headers(dead: pa.RecordBatch, payload: Payload) -> list[list[dict[str, Any]]]:
    kind = _header(PAYLOAD_HEADER, payload)
    if payload == "none":
        return [[kind]] * dead.num_rows
    codes, *parts = (dead.column(name).to_pylist() for name in ("code", "key", "value", "headers"))
    return [
        headers if code in _UNREAD else [kind, *_fingerprints(key, value, headers)]
        for code, key, value, headers in zip(codes, *parts, strict=True)
    ]


def _fingerprints(key: bytes | None, value: bytes | None, headers: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    parts = {"key": key, "value": value, "headers": _joined(headers) if headers else None}
    return [
        _header(f"frazil.{name}", f"{len(part)} {blake2b(part, digest_size=_HASH_BYTES).hexdigest()}")
        for name, part in parts.items()
        if part is not None
    ]


def _joined(headers: list[dict[str, Any]]) -> bytes:
    """Return names and values of headers, each behind its length (-1 for no value), so that different lists have different bytes."""
    parts = (part for header in headers for part in ((header["key"] or "").encode(), header["value"]))
    return b"".join(b"-1 " if part is None else b"%d %s" % (len(part), part) for part in parts)


def _header(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": value.encode()}
