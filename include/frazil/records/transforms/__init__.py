"""Kinds of transforms: `Frame` in, `Frame` out. See `frazil.records.model.frame.Transform`.

::

    catalogue.py         transforms and predicates by the names that users write, own ones included
    chain.py             transforms one after the other
    missing_fields.py    what transforms won't find in any record, said before one is read
    conditions.py        Filter, `When`, and the predicates
    field_sets.py        InsertField, ReplaceField, ExtractField, HoistField, ValueToKey, SetSchemaMetadata, CopyValue
    routers.py           RegexRouter, TimestampRouter
    headers.py           HeaderFrom, InsertHeader, DropHeaders
    kafka_metadata.py    KafkaMetadata
    json_text_fields.py  JsonToMap
    flatten.py, explode.py
    values/              Cast, MaskField, TimestampConverter; numbers, texts and dates as Java writes them
    cdc/                 DebeziumTransform, DmsTransform, MongoDebezium
    sql/                 Sql: expressions of DuckDB

    fields.py            find, put and leave out fields; rows that fail, and rows that go on
    named_fields.py      which fields a transform looks at
    header_lists.py      headers as columns
    patterns.py          regular expressions in linear time
"""
