"""Dead letters whose records are secret: the parts that they keep, and that verify expects the same parts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frazil.records.decoder.redaction import DeclaredNames, Payload, has_record, redacted
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.rows import DEAD_SCHEMA
from frazil.records.model.spec import RecordSpec
from frazil.verify.outcomes import header_pairs, payload_of, stored_record

SECRET = "4111-1111"


def letters(*records: tuple[bytes | None, bytes | None, list[dict[str, Any]] | None]) -> pa.RecordBatch:
    """Letters of records: key, value, headers."""
    size = len(records)
    columns: dict[str, Any] = {
        "code": [DeadCode.WRONG_TYPE.value] * size,
        "stage": ["convert"] * size,
        "message": [f"card: expected a number, found {SECRET}"] * size,
        "path": ["card"] * size,
        "key": [key for key, _, _ in records],
        "value": [value for _, value, _ in records],
        "headers": [headers for _, _, headers in records],
        "topic": ["orders"] * size,
        "partition": [0] * size,
        "offset": list(range(size)),
        "timestamp": [None] * size,
        "destination": [None] * size,
    }
    return pa.RecordBatch.from_pydict(columns, schema=DEAD_SCHEMA)


ONE = (f"k{SECRET}".encode(), f'{{"card": "{SECRET}"}}'.encode(), [{"key": SECRET, "value": SECRET.encode()}])


@pytest.mark.parametrize("payload", ["redacted", "none"])
def test_redacted_dead_letter_shows_nothing_of_its_record(payload: Payload) -> None:
    """Key, value and headers hold secrets, and so does a message that quotes them."""
    declared = DeclaredNames.from_specs([RecordSpec(pa.schema([("card", pa.int64())]))])
    redacted_letters = redacted(letters(ONE), payload, declared)

    assert SECRET not in str(redacted_letters.to_pylist())
    assert redacted_letters.schema == DEAD_SCHEMA
    (row,) = redacted_letters.to_pylist()
    assert (row["code"], row["message"]) == ("WRONG_TYPE", DeadCode.WRONG_TYPE.meaning)
    assert row["path"] == ("card" if payload == "redacted" else None)


def test_full_dead_letter_keeps_everything() -> None:
    """`full` is the default; bytes are untouched."""
    assert redacted(letters(ONE), "full") == letters(ONE)


def test_redacted_dead_letter_keeps_sizes_and_hashes() -> None:
    """Sizes tell a cut value; equal hashes tell equal records."""
    (row,) = redacted(letters((None, b"abc", None)), "redacted").to_pylist()

    assert [(header["key"], header["value"]) for header in row["headers"]] == [
        ("frazil.payload", b"redacted"),
        ("frazil.value", b"3 cf4ab791c62b8d2b2109c90275287816"),
    ]


def test_dead_letters_without_their_record_are_not_decoded_again() -> None:
    """A null value would read as a tombstone, and be left out for good; a real tombstone and a forged header stay."""
    forged = (None, b"{}", [{"key": "frazil.payload", "value": b"none"}])
    tombstone = (b"k", None, None)
    whole = [ONE, forged, tombstone, (None, None, None), (None, None, [])]

    assert has_record(letters(*whole)).to_pylist() == [True] * 5
    assert has_record(redacted(letters(*whole), "none")).to_pylist() == [False] * 5
    assert has_record(redacted(letters(*whole), "redacted")).to_pylist() == [False] * 5


HEADER = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
BYTES = st.none() | st.binary(max_size=5)


@given(BYTES, BYTES, st.none() | st.lists(HEADER, max_size=3), st.sampled_from(["full", "redacted", "none"]))
def test_verify_expects_the_same_redaction(
    key: bytes | None, value: bytes | None, headers: list[dict[str, Any]] | None, payload: Payload
) -> None:
    """The check has its own code for the same promise: both must say the same of any record."""
    (row,) = redacted(letters((key, value, headers)), payload).to_pylist()
    letter = (row["key"], row["value"], header_pairs(row["headers"]), None)
    record = (key, value, header_pairs(headers), None)

    forged = payload == "full" and payload_of(record) != "full"
    assert payload_of(letter) == payload or forged
    assert stored_record(record, payload) == letter
