"""Redacts dead letters where payloads are secret: they keep sizes and hashes of their records, or nothing."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.decoder.declared_names import NOTHING_DECLARED, DeclaredNames
from frazil.records.model.dead_letter import DeadCode, Stage
from frazil.records.model.kafka_schema import PAYLOAD_HEADER

Payload = Literal["full", "redacted", "none"]
"""Whole record, sizes and hashes of its parts, or nothing of it."""

_HASH_BYTES = 16

_UNREAD: Final = frozenset({DeadCode.RECORD_TOO_LARGE, DeadCode.UNREADABLE_BATCH})
"""Codes of letters that have nothing of their records to hide."""

_MEANINGS = {code.value: code.meaning for code in DeadCode}


def redacted(dead: pa.RecordBatch, payload: Payload, declared: DeclaredNames = NOTHING_DECLARED) -> pa.RecordBatch:
    """Return dead letters (rows of `DEAD_SCHEMA`) with no more of their records than `payload` allows.

    Unless that is `full`, key and value are null, and the message, which may quote the value, is what its code means.
    Headers are `frazil.payload` with the kind as its value and, for `redacted`, the length in bytes and the BLAKE2b hash
    (16 bytes, hexadecimal) of what was there: `frazil.key`, `frazil.value` and `frazil.headers`, the latter over names and
    values, each behind its length. Of paths `redacted` keeps the names that are `declared`; `none` has none.
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
    """Return paths as far as they may be shown; the routing field is always declared, in the pipeline file."""
    rows = zip(dead.column("path").to_pylist(), dead.column("stage").to_pylist(), strict=True)
    return pa.array(
        [path if path is None or stage == Stage.ROUTE else declared.visible_path(path) for path, stage in rows],
        pa.string(),
    )


def has_record(letters: pa.RecordBatch) -> pa.BooleanArray:
    """Which letters (columns `key`, `value`, `headers`) hold their record, so that they can be decoded again.

    A letter without key and value whose first header is `frazil.payload` holds none.
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
    return [_header(f"frazil.{name}", _fingerprint(part)) for name, part in parts.items() if part is not None]


def _fingerprint(part: bytes) -> str:
    return f"{len(part)} {blake2b(part, digest_size=_HASH_BYTES).hexdigest()}"


def _joined(headers: list[dict[str, Any]]) -> bytes:
    """Names and values of headers, each behind its length, so that no two lists read alike; -1 is no value."""
    parts = (part for header in headers for part in ((header["key"] or "").encode(), header["value"]))
    return b"".join(b"-1 " if part is None else b"%d %s" % (len(part), part) for part in parts)


def _header(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": value.encode()}
