"""One module per kind of transform: `Frame` in, `Frame` out. See `frazil.records.frame.Transform`.

::

    chain.py             transforms one after the other
    shapes.py            which fields records can have behind a transform
    lacks.py             what transforms won't find in any record, told before one is read
    catalogue.py         transforms and predicates by the names that users write, own ones included
    conditions.py        Filter, `When`, and the predicates
    field_sets.py        InsertField, ReplaceField, ExtractField, HoistField, ValueToKey, SetSchemaMetadata
    masking.py           MaskField
    casting.py           Cast
    timestamps.py        TimestampConverter
    routers.py           RegexRouter, TimestampRouter
    headers.py           HeaderFrom, InsertHeader, DropHeaders
    copy_value.py        CopyValue
    kafka_metadata.py    KafkaMetadata
    json_text_fields.py  JsonToMap
    flatten.py           Flatten
    explode.py           Explode
    cdc_debezium.py      DebeziumTransform
    cdc_dms.py           DmsTransform
    cdc_mongo.py         MongoDebezium
    sql*.py              Sql: expressions of DuckDB

    fields.py            find, put and leave out fields; rows that fail
    selection.py         rows that go on, with the reasons of the others
    header_lists.py      headers as columns
    numbers.py           columns as numbers and booleans
    texts.py             columns as text, as Java writes it
    arrow_json.py        columns as JSON text
    java_dates.py        patterns of SimpleDateFormat
    cdc.py               what the change events have in common
    extended_json.py     documents of MongoDB
"""
