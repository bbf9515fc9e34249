"""Decode the bytes of keys or values to typed columns, or reasons. `frazil.records.model.format` says what a format is.

::

    catalogue.py         formats by the names that users write; those of other packages, too
    keys_and_headers.py  keys and headers of records, and the columns that take them
    framing.py           how records name their schema: the bytes before a value, or a header
    registered.py        reads each value with the schema that it was written with
    logical.py           logical types of Avro, Kafka Connect and Debezium: dates, times, decimals, uuids
    json_block.py        many JSON values of one schema at once, for json_schema/ and connect_json/
    guess.py             guesses the format of bytes
    avro/, protobuf/, json_schema/, connect_json/, delimited/, scalar/ (text, bytes, numbers: one column)

The `__init__` of a format's package defines the format. JSON of declared columns is decoded by `frazil.records.json.typed`.
Pipeline files are read without Arrow, so a definition loads it when it is first used: `from frazil.records import pa`.
"""
