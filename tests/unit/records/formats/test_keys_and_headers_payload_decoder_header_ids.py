"""Schema ids in headers: which header counts, and which values are no id."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.formats.framing import HEADERS, prepend_schema_ids
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.rows import HEADERS as TYPE

NAME = HEADERS["value"]
ID = b"\0\0\0\0\7"
GUID = b"\1" + UUID("89791762-2336-4186-9674-299b90a802e2").bytes

Header = tuple[str, bytes | None]


def headed(rows: list[tuple[bytes, list[Header] | None]], *, has_path: bool = False) -> list[bytes | DeadCode]:
    data = pa.array([value for value, _ in rows], pa.binary())
    lists = [
        None if headers is None else [{"key": key, "value": value} for key, value in headers] for _, headers in rows
    ]
    values, dead = prepend_schema_ids(data, pa.array([[], *lists], TYPE).slice(1), NAME, has_path=has_path)
    return [dead[index].code if index in dead else value for index, value in enumerate(values.to_pylist())]


@pytest.mark.parametrize(
    ("headers", "framed"),
    [
        ([(NAME, ID)], ID + b"abc"),
        ([(NAME, GUID)], GUID + b"abc"),
        ([("trace", b"\0"), (NAME, ID), (HEADERS["key"], GUID)], ID + b"abc"),
        ([(NAME, GUID), (NAME, ID)], ID + b"abc"),
        ([(NAME, ID), (NAME, None)], b"abc"),
        ([(NAME, None)], b"abc"),
        ([(HEADERS["key"], ID)], b"abc"),
        ([], b"abc"),
        (None, b"abc"),
    ],
    ids=["id", "guid", "others beside", "last counts", "last is null", "null", "the key's", "none", "no headers"],
)
def test_last_header_of_the_name_counts(headers: list[Header] | None, framed: bytes) -> None:
    """The last header of the name, else what is before the value; neighbours keep theirs."""
    assert headed([(b"x", None), (b"abc", headers), (b"y", [(NAME, ID)])]) == [b"x", framed, ID + b"y"]


@pytest.mark.parametrize("head", [b"", b"\0", ID[:4], ID + b"\0", GUID[:16], GUID + b"x", b"\2\0\0\0\7", b"7"])
def test_broken_header_is_a_dead_letter(head: bytes) -> None:
    """What is no id is a letter, and is never filled up from the value."""
    assert headed([(b"abcdefghijklmnopqrstuvw", [(NAME, head)]), (b"y", [(NAME, ID)])]) == [
        DeadCode.INVALID_WIRE,
        ID + b"y",
    ]


@pytest.mark.parametrize(
    ("path", "is_one"),
    [(b"\0", True), (b"\2\0", True), (b"\4\2\4", True), (b"", False), (b"\4\2", False), (b"\0\0", False)],
)
def test_message_index_is_in_the_value(path: bytes, is_one: bool) -> None:
    """With Protobuf the header also holds the whole path to the message's type, and nothing else."""
    expected = ID + path + b"m" if is_one else DeadCode.INVALID_WIRE
    assert headed([(b"m", [(NAME, ID + path)])], has_path=True) == [expected]


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=3),
            st.none()
            | st.lists(
                st.tuples(st.sampled_from([NAME, "a"]), st.none() | st.binary(max_size=6) | st.just(ID)), max_size=3
            ),
        ),
        min_size=1,
    )
)
def test_header_ids_do_not_depend_on_neighbours(rows: list[tuple[bytes, list[Header] | None]]) -> None:
    """Any headers: each value has what its own record says, as if it were alone."""
    assert headed(rows) == [one for row in rows for one in headed([row])]


@pytest.mark.parametrize("cut", [slice(0, 3), slice(1, 3), slice(1, 2), slice(0, 2)])
def test_entries_under_a_null_list_are_ignored(cut: slice) -> None:
    """A null list may stand over entries, of a slice or of masked rows: they are of no record."""
    entries = pa.array([{"key": NAME, "value": bytes([0, 0, 0, 0, number])} for number in range(3)], TYPE.value_type)
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), entries, type=TYPE, mask=pa.array([False, True, False])
    )
    expected = [b"\0\0\0\0\0a", b"b", b"\0\0\0\0\2c"]

    values, dead = prepend_schema_ids(pa.array([b"a", b"b", b"c"][cut]), headers[cut], NAME, has_path=False)

    assert (values.to_pylist(), dead) == (expected[cut], {})
