"""Hands the bytes of a record's value, or of its key, to the format that decodes them, with the id of the writer
schema that a header may bring.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from frazil.records.formats.framing import PayloadName, unframe
from frazil.records.formats.registered import remap_positions
from frazil.records.model.format import Decoded, Format, FormatSpec
from frazil.records.model.rows import mask_without, take_distinct


class PayloadDecoder:
    """Decodes values, or keys, of consumed records.

    Args:
        name: Whether values or keys are decoded.
        spec: Declaration of their format.
        payload_format: The opened format.
    """

    def __init__(self, name: PayloadName, spec: FormatSpec, payload_format: Format) -> None:
        self._name: Final = name
        self._spec: Final = spec
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
        if self._spec.source is None:
            return remap_positions(self._format.decode(data), present)
        headers = take_distinct(records.column("headers"), present)
        framed, dead = unframe(self._spec.framing, data, headers, self._name, has_path=self._spec.has_path)
        rows = pa.arange(0, len(framed)).filter(mask_without(len(framed), dead))
        decoded = remap_positions(self._format.decode(take_distinct(framed, rows)), rows)
        return remap_positions(Decoded(decoded.groups, dead | dict(decoded.dead), decoded.unknown_fields), present)
