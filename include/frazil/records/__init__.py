"""Decode, convert and account for Kafka records: Arrow in, Arrow out, nothing else touched.

::

    kafka.py         the Arrow shape of consumed records
    spec.py          what a pipeline wants of a record (travels to executors)
    dead.py          why a record became a dead letter, and its row
    redaction.py     what a dead letter keeps where payloads are secrets
    declared_names.py  which names of a path it may tell then
    outcome.py       what a batch became: rows, dead letters, counts per partition
    block.py         rows that were decoded together, and where they belong
    decode.py        puts it together: batch in, outcomes out
    halves.py        values or keys, with what headers say of them, to their format
    variant.py       what a variant column takes without loss
    keys.py          keys beside the values, and the columns that take their fields

    json_number.py   JSON numbers with every digit
    json_text.py     JSON values back to text
    json_exact.py    bytes -> JSON object, one record at a time: the judge
    json_object.py   names in objects: in any case, and when they repeat
    times.py         texts of dates and times -> integers
    convert*.py      JSON value -> value of an Arrow type, or a reason
    record_exact.py  one record -> one row, or a reason

    json_values.py   JSON into the wanted columns: many at once where that is exact, one by one elsewhere; names in any case
    json_typed.py    many records at once by msgspec, only where the judge would say the same
    carrier*.py      what many values of a column are read as, and how it becomes the column

    formats/         bytes of any other format -> typed columns, or reasons
    frame.py         decoded records on their way to rows: what transforms take and give
    transforms/      frame in, frame out
    shaped.py        values that bring their own columns: format, transforms, fitting
    fit.py           typed columns -> declared columns, or reasons
    fit_column.py    one of them: where its field is, and how it becomes the column
    fit_nested.py, fit_scalar.py, fit_source.py, fit_text.py
                     values of one Arrow type to another, one by one: the judge
    fit/left_out.py, fit/presence.py
                     which fields inside of structs nobody takes, and which were sent at all
    fit_block.py, fit_settle*.py
                     whole arrays at once, only where the judge would say the same

The room knows pyarrow, msgspec, the libraries of the formats (fastavro, protobuf, jsonschema_rs, referencing), DuckDB for `Sql`, and
`frazil.errors`. It must not know about Spark, sockets, Iceberg or configuration files.
"""
