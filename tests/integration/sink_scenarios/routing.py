"""Which record goes to which table."""

from __future__ import annotations

from tests.integration.sink_scenarios.scenario import (
    EVENT,
    EVENT_COLUMNS,
    FIRST,
    SECOND,
    Scenario,
    SinkRecord,
    TableContents,
    event,
    row,
    sink_records,
)

ROUTED = (event(1, "one"), event(2, "two"), event(3, "other"), event(4, None), {"id": 5}, event(6, "one"))
"""Two that `one` is for, one that `two` is for; and a type of nobody, a null, and no type at all."""

TWO = f"""
destinations:
  - {{table: shop.one, columns: {EVENT}}}
  - {{table: shop.two, columns: {EVENT}}}
"""

ONE_AND_TWO = {
    "shop.one": TableContents(EVENT_COLUMNS, (row(1, "one"), row(6, "one"))),
    "shop.two": TableContents(EVENT_COLUMNS, (row(2, "two"),)),
}

BY_TABLE = "columns: {id: long, table: {type: string, from: [data, table]}}"

ID = {"id": "long"}

ROUTING = (
    Scenario(
        "one table takes every record",
        "TestSinkWriter.testDefaultRoute",
        f"destinations: [{{table: shop.events, columns: {EVENT}}}]",
        (sink_records(event(1, "one"), event(2, "two", SECOND), {}),),
        {"shop.events": TableContents(EVENT_COLUMNS, (row(1, "one"), row(2, "two", SECOND), (None,) * 4))},
    ),
    Scenario(
        "without a route every table takes every record",
        "SinkWriter.routeRecordStatically without a route-field",
        TWO,
        (sink_records(event(1, "one")), sink_records(event(2, None))),
        dict.fromkeys(("shop.one", "shop.two"), TableContents(EVENT_COLUMNS, (row(1, "one"), row(2, None)))),
    ),
    Scenario(
        "a field that matches no expression leaves the record out",
        "TestSinkWriter.testStaticRoute, testStaticNoRoute",
        TWO + "route: {static: {field: type, tables: {shop.one: one, shop.two: t.o}}, otherwise: filter}",
        (sink_records(*ROUTED),),
        ONE_AND_TWO,
        filtered=3,
    ),
    Scenario(
        "a field that matches no expression makes a dead letter",
        "TestSinkWriter.testStaticNoRoute",
        TWO + "route: {static: {field: type, tables: {shop.one: one, shop.two: t.o}}}",
        (sink_records(*ROUTED),),
        ONE_AND_TWO,
        letters=((2, None, "UNROUTED"), (3, None, "UNROUTED"), (4, None, "UNROUTED")),
    ),
    Scenario(
        "a field that matches two expressions fills two tables",
        "SinkWriter.routeRecordStatically: every table whose route-regex matches",
        TWO + 'route: {static: {field: type, tables: {shop.one: "one|both", shop.two: "[tb].*"}}}',
        (sink_records(event(1, "one"), event(2, "both"), event(3, "two"), event(4, "none at all, one")),),
        {
            "shop.one": TableContents(EVENT_COLUMNS, (row(1, "one"), row(2, "both"))),
            "shop.two": TableContents(EVENT_COLUMNS, (row(2, "both"), row(3, "two"))),
        },
        letters=((3, None, "UNROUTED"),),
    ),
    Scenario(
        "a partitioned and an unpartitioned table of one topic",
        "TestIntegrationMultiTable.testIcebergSink",
        f"""
destinations:
  - {{table: shop.one, columns: {EVENT}, partition_by: [day(ts)]}}
  - {{table: shop.two, columns: {EVENT}}}
route: {{static: {{field: type, tables: {{shop.one: type1, shop.two: type2}}}}, otherwise: filter}}
""",
        (sink_records(event(1, "type1", FIRST), event(2, "type2", SECOND), event(3, "type3", SECOND)),),
        {
            "shop.one": TableContents(EVENT_COLUMNS, (row(1, "type1"),), ("ts_day day",), files=1),
            "shop.two": TableContents(EVENT_COLUMNS, (row(2, "type2", SECOND),), files=1),
        },
        filtered=1,
    ),
    Scenario(
        "a field names the table",
        "TestSinkWriter.testDynamicRoute, testDynamicNoRoute",
        f"""
destinations:
  - {{table: shop.one, {BY_TABLE}}}
  - {{table: shop.two, {BY_TABLE}}}
route: {{field: {{name: data.table}}}}
""",
        (
            sink_records({"id": 1, "data": {"table": "shop.one"}}),
            sink_records(
                {"id": 2, "data": {"table": "shop.two"}},
                {"id": 3, "data": {"table": "shop.three"}},
                {"id": 4, "data": {"table": None}},
                {"id": 5, "data": None},
                {"id": 6},
                {"id": 7, "data": {"table": 8}},
                {"id": 8, "data": {"table": "shop.one"}},
            ),
        ),
        {
            "shop.one": TableContents(ID | {"table": "string"}, ((1, "shop.one"), (8, "shop.one"))),
            "shop.two": TableContents(ID | {"table": "string"}, ((2, "shop.two"),)),
        },
        letters=tuple((offset, None, "UNROUTED") for offset in range(2, 7)),
    ),
    Scenario(
        "the payload names the table, an unknown one is left out",
        "TestIntegrationDynamicTable.testIcebergSink",
        f"{TWO}route: {{field: {{name: payload}}, otherwise: filter}}",
        (
            sink_records(
                event(1, "type1", FIRST, "shop.one"),
                event(2, "type2", SECOND, "shop.two"),
                event(3, "type3", SECOND, "shop.unknown"),
            ),
        ),
        {
            "shop.one": TableContents(EVENT_COLUMNS, (row(1, "type1", FIRST, "shop.one"),)),
            "shop.two": TableContents(EVENT_COLUMNS, (row(2, "type2", SECOND, "shop.two"),)),
        },
        filtered=1,
    ),
    Scenario(
        "a transform rewrites the topic and another takes the table from it",
        "TestIntegrationDynamicTable.testDynamicRouteWithTopicRewritingSMT,"
        " TestSinkWriter.testOffsetTrackedByOriginalTopicPartition",
        """
value: {fields: {id: long}}
transforms:
  - {type: RegexRouter, regex: ".*-(one|two)", replacement: "shop.$1"}
  - {type: InsertField, topic.field: table}
destinations:
  - {table: shop.one, columns: {id: long}}
  - {table: shop.two, columns: {id: long}}
route: {field: {name: table}}
""",
        (
            (
                SinkRecord({"id": 1}, topic="-one"),
                SinkRecord({"id": 2}, topic="-two"),
                SinkRecord({"id": 3}, topic="-one"),
            ),
        ),
        {"shop.one": TableContents(ID, ((1,), (3,))), "shop.two": TableContents(ID, ((2,),))},
        topics=("-one", "-two"),
    ),
    Scenario(
        "the topic names the table",
        "no test: the sink has no routing by topic (apache/iceberg#11163)",
        """
destinations:
  - {table: shop.one, columns: {id: long}}
  - {table: shop.two, columns: {id: long}}
route: {topic: {rename: {".*-2026.*": shop.one, ".*-two": shop.two}}}
""",
        (
            (SinkRecord({"id": 1}, topic="-20260501"), SinkRecord({"id": 2}, topic="-two")),
            (SinkRecord({"id": 3}, topic="-20260502"), SinkRecord({"id": 4}, topic="-else")),
        ),
        {"shop.one": TableContents(ID, ((1,), (3,))), "shop.two": TableContents(ID, ((2,),))},
        letters=((0, None, "UNROUTED"),),
        topics=("-20260501", "-20260502", "-two", "-else"),
    ),
    Scenario(
        "tombstones and values that are no objects",
        "SinkWriter.save with a null value; RecordUtils.extractFromRecordValue of another value",
        TWO + "route: {static: {field: type, tables: {shop.one: one, shop.two: two}}}",
        (sink_records(event(1, "one"), None, b"5", b'["one"]', None, b"", event(2, "two")),),
        {
            "shop.one": TableContents(EVENT_COLUMNS, (row(1, "one"),)),
            "shop.two": TableContents(EVENT_COLUMNS, (row(2, "two"),)),
        },
        letters=((2, None, "NOT_AN_OBJECT"), (3, None, "NOT_AN_OBJECT"), (5, None, "EMPTY_VALUE")),
        filtered=2,
    ),
    Scenario(
        "partitions that appear in the middle keep the position of the others",
        "TestCoordinator.testCoordinatorCommittedOffsetMerging",
        "destinations: [{table: shop.events, columns: {id: long}}, {table: shop.more, columns: {id: long}}]",
        (
            tuple(SinkRecord({"id": n}, partition=1) for n in range(7)),
            tuple(SinkRecord({"id": n}, partition=0) for n in range(10, 13)),
        ),
        dict.fromkeys(("shop.events", "shop.more"), TableContents(ID, tuple((n,) for n in (10, 11, 12, *range(7))))),
        partitions=2,
    ),
)
