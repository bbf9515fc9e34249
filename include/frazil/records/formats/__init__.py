"""Bytes of keys or values become typed columns, or reasons. `frazil.records.model.format` says what a format is.

::

    catalogue.py        formats by the names that users write, own ones included
    payload_decoder.py  values or keys, with what headers say of them, to their format
    keys.py             keys beside the values, and the columns that take their fields
    wire.py             the frame that Schema Registry clients put before a value; header_ids.py: the same in a header
    registered.py       each value with the schema that it was written with
    logical.py          integers and bytes that mean more, in Avro, Kafka Connect and Debezium
    scalar.py           text, bytes, numbers: one column
    avro/, protobuf/, json_schema/, connect_json/, delimited/

JSON of declared columns has its own, faster way: `frazil.records.json.values`. Pipeline files are read without Arrow, so nothing
here may load it.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

ScalarKind = Literal["string", "bytes", "boolean", "short", "int", "long", "float", "double"]
"""Values that are one text, one run of bytes or one number."""

SCALARS: Final[tuple[ScalarKind, ...]] = get_args(ScalarKind)

WITH_SCHEMA: Final = ("avro", "protobuf", "json-schema")
"""Formats whose values are read by a schema."""

FORMATS: Final = ("json", "json-envelope", *WITH_SCHEMA, "delimited", *SCALARS)
"""Formats that come with Frazil: the one list of their names."""
