"""Tables that the pipeline makes: their namespaces, columns, partitions; and those that it lands into."""

from __future__ import annotations

from datetime import timedelta

from tests.integration.sink_scenarios.scenario import (
    EVENT,
    EVENT_COLUMNS,
    FIRST,
    SECOND,
    TIMESTAMP,
    Scenario,
    TableContents,
    event,
    millis,
    row,
    schema,
    sink_records,
    struct,
    with_schema,
)

_MANY = """
destinations:
  - table: shop.events
    columns:
      id: {type: long, required: true}
      type: string
      ts: {type: timestamptz, unit: ms}
      paid: timestamp
      day: date
    partition_by:
      - "bucket(4, id)"
      - "truncate(3, type)"
      - year(ts)
      - month(paid)
      - day(day)
      - hour(_kafka_timestamp)
      - type
"""

_EVENT_SCHEMA = struct(
    id=schema("int64", optional=False), type=schema("string"), ts=schema(TIMESTAMP), payload=schema("string")
)

CREATION = (
    Scenario(
        "a table partitioned by day",
        "TestIntegration.testIcebergSinkPartitionedTable",
        f"destinations: [{{table: shop.events, columns: {EVENT}, partition_by: [day(ts)]}}]",
        (sink_records(event(1, "type1", FIRST), event(2, "type2", SECOND)),),
        {
            "shop.events": TableContents(
                EVENT_COLUMNS, (row(1, "type1"), row(2, "type2", SECOND)), ("ts_day day",), files=2
            )
        },
    ),
    Scenario(
        "an unpartitioned table",
        "TestIntegration.testIcebergSinkUnpartitionedTable",
        f"destinations: [{{table: shop.events, columns: {EVENT}}}]",
        (sink_records(event(1, "type1", FIRST), event(2, "type2", SECOND)),),
        {"shop.events": TableContents(EVENT_COLUMNS, (row(1, "type1"), row(2, "type2", SECOND)), files=1)},
    ),
    Scenario(
        "the same with schemas, on a branch",
        "TestIntegration.testIcebergSinkPartitionedTable with a schema and a commit branch",
        f"""
value: {{format: json-envelope}}
destinations:
  - {{table: shop.events, columns: {EVENT}, partition_by: [day(ts)], branch: test_branch}}
  - {{table: shop.copies, columns: {EVENT}, branch: test_branch}}
""",
        (
            sink_records(with_schema(_EVENT_SCHEMA, event(1, "type1"))),
            sink_records(with_schema(_EVENT_SCHEMA, event(2, None, SECOND))),
        ),
        {
            "shop.events": TableContents(
                EVENT_COLUMNS, (row(1, "type1"), row(2, None, SECOND)), ("ts_day day",), files=2
            ),
            "shop.copies": TableContents(EVENT_COLUMNS, (row(1, "type1"), row(2, None, SECOND))),
        },
    ),
    Scenario(
        "columns from JSON without a schema",
        "TestIntegration.testIcebergSinkAutoCreate without a schema",
        "destinations: [{table: shop.events}, {table: shop.copies}]",
        (sink_records(event(1, "type1", FIRST) | {"op": None}, event(2, "type2", SECOND)),),
        dict.fromkeys(
            ("shop.events", "shop.copies"),
            TableContents(
                {"id": "long", "payload": "string", "ts": "long", "type": "string"},
                ((1, "hello world!", millis(FIRST), "type1"), (2, "hello world!", millis(SECOND), "type2")),
            ),
        ),
    ),
    Scenario(
        "columns and partitions from schemas",
        "TestIntegration.testIcebergSinkAutoCreate with a schema",
        "value: {format: json-envelope}\ndestinations: [{table: shop.events, partition_by: [hour(ts)]}]",
        (
            sink_records(
                with_schema(_EVENT_SCHEMA, event(1, "type1", FIRST)),
                with_schema(_EVENT_SCHEMA, event(2, None, FIRST + timedelta(hours=1))),
            ),
        ),
        {
            "shop.events": TableContents(
                {"id": "long", "payload": "string", "ts": "timestamptz", "type": "string"},
                ((1, "hello world!", FIRST, "type1"), (2, "hello world!", FIRST + timedelta(hours=1), None)),
                ("ts_hour hour",),
                files=2,
            )
        },
    ),
    Scenario(
        "many partition fields",
        "TestSchemaUtils.testCreatePartitionSpec",
        _MANY,
        (
            sink_records(
                event(1, "type1") | {"paid": "2026-05-01T10:30:00", "day": "2026-05-01"},
                event(2, None, SECOND) | {"paid": None},
                event(1, "type1") | {"paid": "2026-05-01T10:30:00", "day": "2026-05-01"},
            ),
        ),
        {
            "shop.events": TableContents(
                {"id": "long!", "type": "string", "ts": "timestamptz", "paid": "timestamp", "day": "date"},
                (
                    (1, "type1", FIRST, FIRST.replace(tzinfo=None), FIRST.date()),
                    (2, None, SECOND, None, None),
                    (1, "type1", FIRST, FIRST.replace(tzinfo=None), FIRST.date()),
                ),
                (
                    "id_bucket bucket[4]",
                    "type_truncate truncate[3]",
                    "ts_year year",
                    "paid_month month",
                    "day_day day",
                    "_kafka_timestamp_hour hour",
                    "type identity",
                ),
            )
        },
    ),
    Scenario(
        "partition fields of columns that come with the records",
        "TestIcebergWriterFactory.testAutoCreateTable, partitioned",
        "destinations: [{table: lake.raw.shop.events, partition_by: [data, 'bucket(2, id)']}]",
        (sink_records({"id": 1}), sink_records({"id": 2, "data": "a"}, {"id": 3, "data": "b"}, {"id": 4})),
        {
            "lake.raw.shop.events": TableContents(
                {"id": "long", "data": "string"},
                ((1, None), (2, "a"), (3, "b"), (4, None)),
                ("id_bucket bucket[2]", "data identity"),
            )
        },
    ),
    Scenario(
        "namespaces within namespaces",
        "TestIcebergWriterFactory.testAutoCreateTable",
        f"""
destinations:
  - {{table: foo1.foo2.foo3.events, columns: {EVENT}}}
  - {{table: foo1.bar.events, columns: {EVENT}}}
""",
        (sink_records(event(1, "type1")),),
        dict.fromkeys(("foo1.foo2.foo3.events", "foo1.bar.events"), TableContents(EVENT_COLUMNS, (row(1, "type1"),))),
    ),
    Scenario(
        "tables that the file does not list",
        "TestIntegrationDynamicTable.testIcebergSink with auto-create; names keep their case here",
        r"""
destinations: []
route:
  field: {name: to, allow: ['shop\..*']}
  create: {namespace: shop, max_new_tables: 10, columns: {id: long}}
""",
        (
            sink_records({"id": 1, "to": "shop.a"}),
            sink_records(
                {"id": 2, "to": "shop.b"},
                {"id": 3, "to": "shop.Beta"},
                {"id": 4, "to": "other.c"},
                {"id": 5, "to": None},
                {"id": 6, "to": "shop.a"},
            ),
        ),
        {
            name: TableContents({"id": "long"}, rows)
            for name, rows in (("shop.a", ((1,), (6,))), ("shop.b", ((2,),)), ("shop.Beta", ((3,),)))
        },
        letters=((3, None, "UNROUTED"), (4, None, "UNROUTED")),
    ),
    Scenario(
        "tables that the file does not list, with the columns of their records",
        "TestIntegrationDynamicTable.testIcebergSink with auto-create and evolve-schema, partitioned",
        r"""
destinations: []
route:
  field: {name: to, allow: ['shop\..*']}
  create: {namespace: shop, max_new_tables: 10, partition_by: [kind]}
""",
        (
            sink_records({"to": "shop.a", "kind": "x", "id": 1}),
            sink_records({"to": "shop.b", "kind": "y"}, {"to": "shop.a", "kind": "y", "price": 1.5}),
        ),
        {
            "shop.a": TableContents(
                {"id": "long", "kind": "string", "to": "string", "price": "double"},
                ((1, "x", "shop.a", None), (None, "y", "shop.a", 1.5)),
                ("kind identity",),
            ),
            "shop.b": TableContents({"kind": "string", "to": "string"}, (("y", "shop.b"),), ("kind identity",)),
        },
    ),
)
