"""Avro values that are read column by column have the same outcomes as one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.records.casting.source import physical_values
from frazil.records.formats.avro.avro import BlockCodec, codec
from frazil.records.formats.avro.columns import MIN_BLOCK_VALUES
from frazil.records.model.dead_letter import Rejection
from frazil.records.model.format import Decoded, WriterSchema
from tests.unit.records.formats.avro_bytes import Bytes, Shape, text


def _by_position(decoded: Decoded) -> dict[int, Any]:
    results: dict[int, Any] = dict(decoded.dead)
    for group in decoded.groups:
        assert group.positions.to_pylist() == sorted(group.positions.to_pylist())
        group.columns.validate(full=True)
        rows = [repr(row) for row in physical_values(group.columns.to_struct_array())]  # NaN equals nothing
        results |= dict(zip(group.positions.to_pylist(), rows, strict=True))
    return results


HEAD = b"\xc3\x01schema's"
"""What values of one schema may begin with: Avro's single-object encoding."""


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.integers(0, 2**64))
def test_columns_and_single_values_agree(seed: int) -> None:
    """Whatever the schema and the bytes: the same rows, and the same reasons."""
    rng = Random(seed)
    # Now and then a value that is no record, and values that say which schema they have.
    schema = Shape(rng).any(2) if rng.random() < 0.2 else Shape(rng).record(2, rng.randrange(1, 5))
    head = HEAD if rng.random() < 0.3 else None
    try:
        avro_codec = codec(WriterSchema("AVRO", text(schema)), head)
    except Rejection:  # items of no bytes
        return
    if not isinstance(avro_codec, BlockCodec):
        return
    made_of = [Bytes(rng).of(schema) for _ in range(rng.choice((MIN_BLOCK_VALUES, 40, 90)))]
    if head is not None:
        made_of = [rng.choice((HEAD + value, HEAD + value, value, HEAD[:-1] + value)) for value in made_of]
    payloads = pa.array([b"before", *made_of, b"behind"], pa.binary()).slice(1, len(made_of))

    assert _by_position(avro_codec.decode(payloads)) == _by_position(avro_codec.rows.decode(payloads))
