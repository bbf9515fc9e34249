"""Hands the bytes of a record's value, or of its key, to the format that decodes them, with the id of the writer
schema that a header may bring.
"""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from frazil.records.formats.registered import HEADS, message_path, remap_positions
from frazil.records.model.dead_letter import DeadCode, Reason, Rejection
from frazil.records.model.format import Decoded, Format, FormatSpec
from frazil.records.model.kafka_schema import last_header
from frazil.records.model.rows import mask_without, take_distinct

# The header `__value_schema_id` or `__key_schema_id` holds what else would be in front (see `frazil.records.formats.registered`):
# magic and id or GUID, with Protobuf also the way to the message's type. So it is put back there. Of several headers of that
# name the last one counts, and one without value is none, as Confluent's Java deserialiser has it.

HEADERS: Final = {"value": "__value_schema_id", "key": "__key_schema_id"}
"""Names of the headers by the half of the record that they are about."""


def prepend_schema_ids(
    data: pa.BinaryArray, headers: pa.ListArray, name: str, *, has_path: bool
) -> tuple[pa.BinaryArray, dict[int, Reason]]:
    """Put the schema id of each record's header before its value; values without such a header stay as they are.

    Args:
        data: Values or keys, none of them null.
        headers: The headers of their records.
        name: Name of the header.
        has_path: Whether the way to a Protobuf message follows the id.

    Returns:
        As many values, and reasons (INVALID_WIRE) by position where the header names no schema.
    """
    rows, header_values = last_header(headers, name)
    rows, header_values = rows.filter(header_values.is_valid()), header_values.drop_null()
    if not len(rows):
        return data, {}
    distinct_heads = header_values.dictionary_encode()
    faults = [_fault(head, name, has_path=has_path) for head in distinct_heads.dictionary.to_pylist()]
    dead = {
        row: fault
        for row, head_index in zip(rows.to_pylist(), distinct_heads.indices.to_pylist(), strict=True)
        if (fault := faults[head_index]) is not None
    }
    # Row of each value in `header_values`; null without header, which becomes an empty prefix below.
    header_index = pc.index_in(pa.array(range(len(data)), pa.int64()), value_set=rows)
    heads = pc.fill_null(header_values.take(header_index), pa.scalar(b"", pa.binary()))
    return pc.binary_join_element_wise(heads, data, pa.scalar(b"", pa.binary())), dead


def _fault(head: bytes, name: str, *, has_path: bool) -> Reason | None:
    size = HEADS.get(head[0]) if head else None
    if size is not None and len(head) >= size and _has_expected_rest(head[size:], has_path=has_path):
        return None
    behind = " and the way to a message" if has_path else ""
    expected = f"expected 0x00 and a schema's id of 4 bytes, or 0x01 and its GUID of 16{behind}"
    actual = f"{len(head)} bytes" + (f": 0x{head[:20].hex()}" if head else "")
    return Reason(DeadCode.INVALID_WIRE, f"header {name}: {expected}, found {actual}")


def _has_expected_rest(rest: bytes, *, has_path: bool) -> bool:
    """Whether nothing is behind the id, or exactly the way to a message."""
    if not has_path:
        return not rest
    try:
        return message_path(rest)[1] == len(rest)
    except Rejection:
        return False


PayloadName = Literal["value", "key"]


class PayloadDecoder:
    """Decodes values, or keys, of consumed records.

    Args:
        name: Whether values or keys are decoded.
        spec: Declaration of their format.
        payload_format: The opened format.
    """

    def __init__(self, name: PayloadName, spec: FormatSpec, payload_format: Format) -> None:
        self._name: Final = name
        self._header: Final = None if spec.source is None else HEADERS[name]
        self._has_path: Final = spec.has_path
        self._format: Final = payload_format

    def decode(self, records: pa.RecordBatch, present: pa.Int64Array) -> Decoded:
        """Decode some records; positions are those in `records`. No bytes make this fail.

        Args:
            records: The consumed batch, of `KAFKA_SCHEMA`.
            present: Positions of the records to decode, ascending; their value, or key, is not null.

        Raises:
            Retryable: a writer schema can't be had now.
            Terminal: the registry refuses to answer.
        """
        data = take_distinct(records.column(self._name), present)
        if self._header is None:
            return remap_positions(self._format.decode(data), present)
        headers = take_distinct(records.column("headers"), present)
        framed, dead = prepend_schema_ids(data, headers, self._header, has_path=self._has_path)
        rows = pa.arange(0, len(framed)).filter(mask_without(len(framed), dead))
        decoded = remap_positions(self._format.decode(take_distinct(framed, rows)), rows)
        return remap_positions(Decoded(decoded.groups, dead | dict(decoded.dead), decoded.unknown_fields), present)
