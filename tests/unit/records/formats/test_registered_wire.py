"""The frame before a value: valid and invalid frames."""

from __future__ import annotations

from io import BytesIO
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.formats.registered import message_path, split_by_schema
from frazil.records.model.dead_letter import DeadCode, Rejection

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


@pytest.mark.parametrize(
    ("value", "schema_id", "payload"),
    [
        (b"\0\0\0\0\7abc", 7, b"abc"),
        (b"\0\xff\xff\xff\xffabc", 2**32 - 1, b"abc"),
        (b"\0\0\0\0\7", 7, b""),
        (b"\1" + GUID.bytes + b"abc", GUID, b"abc"),
        (b"\1" + GUID.bytes, GUID, b""),
    ],
    ids=["id", "largest id", "nothing behind", "guid", "guid and nothing behind"],
)
def test_a_frame_names_its_schema(value: bytes, schema_id: int | UUID, payload: bytes) -> None:
    """The head is taken off, however little follows."""
    groups, dead = split_by_schema(pa.array([value]))

    assert not dead
    assert [(g.schema_id, g.payloads.to_pylist(), g.positions.to_pylist()) for g in groups] == [
        (schema_id, [payload], [0])
    ]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", DeadCode.EMPTY_VALUE),
        (b"\0", DeadCode.INVALID_WIRE),
        (b"\0\0\0\7", DeadCode.INVALID_WIRE),
        (b"\1" + GUID.bytes[:15], DeadCode.INVALID_WIRE),
        (b"\2\0\0\0\7abc", DeadCode.INVALID_WIRE),
        (b'{"a": 1}', DeadCode.INVALID_WIRE),
    ],
    ids=["empty", "magic only", "cut id", "cut guid", "unknown magic", "plain json"],
)
def test_unframed_value_is_a_dead_letter_alone(value: bytes, code: DeadCode) -> None:
    """A value without a frame is not guessed at."""
    groups, dead = split_by_schema(pa.array([value, b"\0\0\0\0\7x"]))

    assert dead[0].code is code
    assert [(g.payloads.to_pylist(), g.positions.to_pylist()) for g in groups] == [([b"x"], [1])]


@given(st.lists(st.tuples(st.integers(0, 3) | st.just(GUID), st.binary(max_size=3)) | st.binary(max_size=4)))
def test_every_value_has_one_group_or_reason(values: list[tuple[int | UUID, bytes] | bytes]) -> None:
    """Grouping loses no value, mixes none up and keeps their order, also in a slice of an array."""
    written = [_written(value) for value in values]
    groups, dead = split_by_schema(pa.array([b"before", *written], pa.binary()).slice(1))

    results = dict.fromkeys(dead)
    for group in groups:
        positions = group.positions.to_pylist()
        assert positions == sorted(positions)
        for position, payload in zip(positions, group.payloads.to_pylist(), strict=True):
            results[position] = (group.schema_id, payload)
    assert [results[number] for number in range(len(values))] == [v if isinstance(v, tuple) else None for v in values]


def _written(value: tuple[int | UUID, bytes] | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    schema_id, payload = value
    head = b"\1" + schema_id.bytes if isinstance(schema_id, UUID) else b"\0" + schema_id.to_bytes(4, "big")
    return head + payload


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5), st.binary(max_size=5))
def test_message_index_is_read_as_the_reference_writes_it(path: list[int], message: bytes) -> None:
    """Steps of any size, and the short form of the first message."""
    buffer = BytesIO()
    ProtobufSerializer._encode_varints(buffer, path)

    assert message_path(buffer.getvalue() + message) == (tuple(path), len(buffer.getvalue()))


@pytest.mark.parametrize("payload", [b"", b"\2", b"\x80", b"\x80" * 9, b"\1", b"\xff\xff\xff\xff\x0f", b"\4\0"])
def test_invalid_message_index_is_no_frame(payload: bytes) -> None:
    """Cut, endless, negative and huge counts are told, not followed."""
    with pytest.raises(Rejection) as caught:
        message_path(payload)

    assert caught.value.reason.code is DeadCode.INVALID_WIRE
