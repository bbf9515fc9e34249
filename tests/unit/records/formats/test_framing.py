"""Frames of Glue and Apicurio: each names its schema as Confluent's would, and no bytes stop their neighbours."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any, cast, get_args
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.formats.framing import MAX_UNPACKED, unframe
from frazil.records.formats.registered import split_by_schema
from frazil.records.model.cells import STEP_BYTES, in_steps
from frazil.records.model.format import Framing
from frazil.records.model.rows import KAFKA_SCHEMA
from frazil.verify.values.formats import _FRAMES
from frazil.verify.values.json_document import Unfit
from frazil.verify.values.native import UnjudgedError

VERSION = UUID("9019aebc-de26-4023-ad5b-9fa80a860437")
STORED, ZLIB = b"\3\0" + VERSION.bytes, b"\3\5" + VERSION.bytes
BOMB = zlib.compress(bytes(MAX_UNPACKED), 9)
LARGE = b"".join(Random(number).randbytes(24) + bytes(1000) for number in range(15 << 10))
"""15 MiB that pack to a fortieth, as values of a producer may."""
FRAMINGS: tuple[Framing, ...] = get_args(Framing)

Headers = list[dict[str, Any]]


def glue(value: bytes) -> bytes:
    """A value as Glue's serializers pack it."""
    return ZLIB + zlib.compress(value)


def header(name: str, value: bytes | None) -> dict[str, Any]:
    return {"key": name, "value": value}


def named(framing: Framing, *records: tuple[bytes, Headers]) -> list[Any]:
    """What each record names: schema and value, or the code of its dead letter."""
    data = pa.array([data for data, _ in records], pa.binary())
    lists = pa.array([headers for _, headers in records], KAFKA_SCHEMA.field("headers").type)
    framed, dead = unframe(framing, data, lists, "value", has_path=False)
    assert len(framed) == len(records)
    alive = [row for row in range(len(records)) if row not in dead]
    results: list[Any] = [dead[row].code.value if row in dead else None for row in range(len(records))]
    groups, unframed = split_by_schema(framed.take(pa.array(alive, pa.int64())))
    for group in groups:
        for position, payload in zip(group.positions.to_pylist(), group.payloads.to_pylist(), strict=True):
            results[alive[position]] = (group.schema_id, payload)
    for position, reason in unframed.items():
        results[alive[position]] = reason.code.value
    return results


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (bytes.fromhex("03009019aebcde264023ad5b9fa80a8604370e"), (VERSION, b"\x0e")),  # of a client of Glue's
        (STORED, (VERSION, b"")),
        (glue(b"abc" * 50), (VERSION, b"abc" * 50)),
        (glue(b""), (VERSION, b"")),
        (b"", "EMPTY_VALUE"),
        (b"\2\0" + VERSION.bytes + b"x", "INVALID_WIRE"),
        (b"\3\1" + VERSION.bytes + b"x", "INVALID_WIRE"),
        (STORED[:-1], "INVALID_WIRE"),
        (b"\0\0\0\0\7x", "INVALID_WIRE"),
        (ZLIB, "INVALID_WIRE"),
        (ZLIB + b"plain", "INVALID_WIRE"),
        (glue(b"abc")[:-2], "INVALID_WIRE"),
        (glue(b"abc") + b"more", "INVALID_WIRE"),
        (ZLIB + BOMB, "INVALID_WIRE"),
        (ZLIB + zlib.compress(bytes(MAX_UNPACKED - 1)), "INVALID_WIRE"),
        (glue(LARGE), (VERSION, LARGE)),
        (glue(bytes(4096)), (VERSION, bytes(4096))),
        (glue(bytes(8192)), "INVALID_WIRE"),
    ],
    ids=lambda part: part[:20].hex() if isinstance(part, bytes) else str(part)[:20],
)
def test_frame_of_glue_names_its_schema_or_is_a_dead_letter_alone(value: bytes, expected: Any) -> None:
    """A hostile frame costs its own record, at most 16 MiB and no other record."""
    neighbour = (STORED + b"n", [])

    assert named("glue", neighbour, (value, []), neighbour) == [(VERSION, b"n"), expected, (VERSION, b"n")]


def test_values_that_unpack_to_much_are_decoded_in_steps() -> None:
    """Twelve small records that each become 15 MiB are 180 MiB: never held at once, and none of them is lost."""
    packed = glue(LARGE)
    records = pa.record_batch({"value": pa.array([packed] * 12, pa.binary()), "headers": pa.array([[]] * 12, HEADERS)})
    lengths: list[int] = []

    def decode(batch: pa.RecordBatch) -> int:
        framed, dead = unframe("glue", batch["value"], batch["headers"], "value", has_path=False)
        assert not dead
        lengths.append(framed.nbytes)
        return len(framed)

    assert sum(count for _, count in in_steps(decode, [records])) == 12
    assert max(lengths) <= STEP_BYTES + (16 << 20)


HEADERS = KAFKA_SCHEMA.field("headers").type
LONG_ID = (7).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("value", "headers", "expected"),
    [
        (bytes.fromhex("0000000000000000040e"), [], (4, b"\x0e")),  # of Apicurio's own serializer
        (b"\x0e", [header("apicurio.value.globalId", LONG_ID)], (7, b"\x0e")),
        (b"", [header("apicurio.value.globalId", LONG_ID)], (7, b"")),
        (b"\0" + LONG_ID, [header("apicurio.value.globalId", None)], (7, b"")),
        (b"x", [header("apicurio.value.globalId", bytes(8)), header("apicurio.value.globalId", LONG_ID)], (7, b"x")),
        (b"x", [header("apicurio.key.globalId", LONG_ID)], "INVALID_WIRE"),
        (b"\0" + LONG_ID, [header("apicurio.value.globalId", b"\7")], "INVALID_WIRE"),
        (b"\0" + LONG_ID, [header("apicurio.value.contentId", LONG_ID)], "INVALID_WIRE"),
        (b"", [], "EMPTY_VALUE"),
        (b"\0\0\0\0\7x", [], "INVALID_WIRE"),
        (b"\1" + LONG_ID, [], "INVALID_WIRE"),
        (b"\0" + (2**40).to_bytes(8, "big"), [], "UNKNOWN_SCHEMA"),
        (b"x", [header("apicurio.value.globalId", b"\xff" * 8)], "UNKNOWN_SCHEMA"),
    ],
)
def test_frame_of_apicurio_names_its_schema_or_is_a_dead_letter_alone(
    value: bytes, headers: Headers, expected: Any
) -> None:
    """In front of the value or in its header; an id of the other kind counts something else."""
    neighbour = (b"\0" + LONG_ID + b"n", [])

    assert named("apicurio-global-id", neighbour, (value, headers), neighbour) == [(7, b"n"), expected, (7, b"n")]


def test_batch_without_records_has_no_frames() -> None:
    """A batch may have none left."""
    assert [named(framing) for framing in FRAMINGS] == [[]] * len(FRAMINGS)


BYTES = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda head, rest: head + rest,
        st.sampled_from([STORED, ZLIB, b"\0" * 5, b"\0" * 8, b"\0" + LONG_ID]),
        st.binary(max_size=9),
    ),
    st.binary(max_size=200).map(glue),
)
NAMES = [f"{name}{kind}" for name in ("apicurio.value.", "apicurio.key.") for kind in ("globalId", "contentId")]
CONTENTS = st.sampled_from([b"", LONG_ID, LONG_ID + b"\0"])
LISTS = st.lists(
    st.builds(header, st.sampled_from([*NAMES, "__value_schema_id"]), st.none() | st.binary(max_size=9) | CONTENTS),
    max_size=2,
)


@given(st.sampled_from(FRAMINGS), st.lists(st.tuples(BYTES, LISTS), max_size=4))
def test_no_bytes_make_a_frame_fail_and_verify_reads_the_same(
    framing: Framing, records: list[tuple[bytes, Headers]]
) -> None:
    """Two readings of one frame, of which neither knows the other."""
    for (value, headers), header_names in zip(records, named(framing, *records), strict=True):
        by_name = {one["key"]: cast("bytes", one["value"]) for one in headers}
        try:
            key, payload = _FRAMES[framing](value, by_name, "value")
        except UnjudgedError:
            continue
        except Unfit:
            assert isinstance(header_names, str)
            continue
        if isinstance(key, int) and key >= 2**32:
            assert header_names == "UNKNOWN_SCHEMA"
        else:
            # Confluent's header may have more behind the id: the path to a message, if there is one.
            assert header_names == (key, payload) or (framing == "confluent" and header_names == "INVALID_WIRE")
