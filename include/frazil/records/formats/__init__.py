"""One module per format: bytes of keys or values become typed columns, or reasons.

::

    port.py          what a format is, and where writer schemas come from
    catalogue.py     formats by the names that users write, own ones included
    wire.py          the frame that Schema Registry clients put before a value
    header_ids.py    the same, where it is in a header
    registered.py    each value with the schema that it was written with
    avro*.py         Avro, with a registry or with a schema
    protobuf*.py     Protocol Buffers, likewise
    json_schema*.py  JSON that a registered schema describes
    envelope*.py     Kafka Connect's JSON with its schema in every record
    logical.py       integers and bytes that mean more, in Avro, Kafka Connect and Debezium
    scalar.py        text, bytes, numbers: one column
    delimited*.py    CSV and its relatives

JSON of declared columns has its own, faster way: `frazil.records.json.values`.
"""
