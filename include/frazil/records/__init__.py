"""Decode, convert and account for Kafka records: Arrow in, Arrow out, nothing else touched.

::

    kafka.py         the Arrow shape of consumed records
    spec.py          what a pipeline wants of a record (travels to executors)
    dead.py          why a record became a dead letter, and its row
    outcome.py       what a batch became: rows, dead letters, counts per partition
    json_number.py   JSON numbers with every digit
    json_text.py     JSON values back to text
    json_exact.py    bytes -> JSON object, one record at a time: the judge
    times.py         texts of dates and times -> integers
    convert*.py      JSON value -> value of an Arrow type, or a reason
    record_exact.py  one record -> one row, or a reason
    json_block.py    many records at once, only where the judge would say the same
    carriers.py      what the block parser reads a column as, and how it becomes the column
    decode.py        puts it together: batch in, outcomes out

The room knows pyarrow and `frazil.errors`. It must not know about Spark, sockets, Iceberg or
configuration files.
"""
