"""Decode, convert and account for Kafka records: Arrow in, Arrow out, nothing else touched.

Sub-rooms, each of which knows those below it::

    decoder/     a batch of records becomes rows, dead letters and counts. Begin with `decode.py`
    cdc/         change events become rows to merge
    formats/     bytes become typed columns, or reasons; a folder per format
    evolution/   what records need that their tables do not have
    transforms/  decoded records in, decoded records out
    casting/     typed columns become the declared columns of a table, or reasons
    json/        JSON values become declared columns: many at once where that is exact, one by one elsewhere
    model/       the words: records as Arrow, columns, formats, changes, dead letters, what a pipeline asks for

The room knows pyarrow, msgspec, the libraries of the formats (fastavro, protobuf, jsonschema_rs, referencing), DuckDB for `Sql`, and
`frazil.errors`. It must not know about Spark, sockets, Iceberg or configuration files.
"""
