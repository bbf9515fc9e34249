"""Bytes of keys or values become typed columns, or reasons. `frazil.records.model.format` says what a format is.

::

    catalogue.py        formats by the names that users write, own ones included
    payload_decoder.py  values or keys, with what headers say of them, to their format
    keys.py             keys beside the values, and the columns that take their fields
    wire.py             the frame that Schema Registry clients put before a value; header_ids.py: the same in a header
    registered.py       each value with the schema that it was written with
    logical.py          integers and bytes that mean more, in Avro, Kafka Connect and Debezium
    avro/, protobuf/, json_schema/, connect_json/, delimited/, scalar/ (text, bytes, numbers: one column)

The `__init__` of a format's package defines it. JSON of declared columns has its own, faster way: `frazil.records.json.typed`.
Pipeline files are read without Arrow, so what defines a format loads it at first use: `from frazil.records import pa`.
"""
