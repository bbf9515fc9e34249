"""Configurations of the Iceberg sink as its documents and its users have them, with records for them and what lands then.

Sources: the Wuerike demo of a meetup deck (payments), the pizza demo of a blog, the README and the transforms' README of Tabular's sink,
the sink's own integration tests, Debezium's page on event flattening, and a pipeline of Postgres tables on GitHub.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from frazil.connect.config import Connector
from frazil.connect.findings import APACHE, TABULAR
from frazil.connect.importing import ImportContext, ImportedConnector, import_connector
from tests.integration.sink_scenarios.scenario import (
    FIRST,
    Scenario,
    SinkRecord,
    TableContents,
    event,
    row,
    sink_records,
)

_PARTS: Final = ("value", "key", "transforms", "route", "destinations")
_COMMON: Final = {
    "name": "orders",
    "tasks.max": "2",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "https://catalog.example.org",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
SMT: Final = "org.apache.kafka.connect.transforms."
_DYNAMIC: Final = {"iceberg.tables.dynamic-enabled": "true"}


@dataclass(frozen=True)
class DocumentedConnector:
    """A connector that somebody runs.

    Attributes:
        origin: Where it is from.
        config: Its keys, beside the common ones.
        columns: Columns of its tables, as `--columns` has them.
        rounds: Records, run by run.
        contents: What each table holds at the end.
        filtered: Records that are left out on record.
        is_merged: Whether rows are merged by their key, which only Spark does.
    """

    origin: str
    config: Mapping[str, str]
    columns: Mapping[str, Mapping[str, Any]]
    rounds: tuple[tuple[SinkRecord, ...], ...]
    contents: Mapping[str, TableContents]
    filtered: int = 0
    is_merged: bool = field(default=False, kw_only=True)

    def __str__(self) -> str:
        return self.origin.replace(" ", "_")

    def imported(self) -> ImportedConnector:
        """The pipeline that it becomes, on a cluster and a catalog of the test's settings, into tables that are not there yet."""
        columns = {
            table: {name: kind if isinstance(kind, dict) else {"type": kind} for name, kind in declared.items()}
            for table, declared in self.columns.items()
        }
        names = tuple(self.contents)
        tables = () if "iceberg.tables" in self.config else names
        context = ImportContext(columns=columns, tables=tables, absent=names, cluster="local", catalog="lake")
        return import_connector(Connector("connector.json", _COMMON | self.config), context)

    def scenario(self) -> Scenario:
        """A scenario of the pipeline: its records, and what is there then."""
        pipeline = self.imported().pipeline
        file = yaml.safe_dump({part: pipeline[part] for part in _PARTS if part in pipeline})
        return Scenario(self.origin, self.origin, file, self.rounds, self.contents, filtered=self.filtered)


def _envelope(
    op: str, before: Any, after: Any, table: str = "customers", database: str = "inventory"
) -> dict[str, Any]:
    source = {"db": database, "schema": database, "table": table, "ts_ms": 1_700_000_000_000, "lsn": 24}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 1_700_000_000_500}


def _document(op: str, before: str | None, after: str | None) -> dict[str, Any]:
    source = {"db": "shop", "collection": "users", "ts_ms": 1}
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": 2}


def _dms(operation: str, data: Any) -> dict[str, Any]:
    names = {"schema-name": "shop", "table-name": "orders", "record-type": "data"}
    return {"data": data, "metadata": {"operation": operation, "timestamp": "2026-05-01T10:30:00Z", **names}}


_EVENT: Final = {"id": "long", "type": "string", "ts": "timestamptz", "payload": "string"}
_KEYED: Final = {**_EVENT, "id": "long!"}
_PAYMENTS: Final = {
    "id": "string",
    "type": "string",
    "created_at": "timestamptz",
    "document": "string",
    "payer": "string",
    "amount": "int",
}
_PIZZAS: Final = ("order_id", "store_id", "sauce", "meats", "date_ordered")

DOCUMENTED: Final = (
    DocumentedConnector(
        "deck payments",
        {
            "connector.class": TABULAR,
            "topics": "payments",
            "iceberg.tables": "orders.payments",
            "iceberg.control.commitIntervalMs": "1000",
        },
        {"orders.payments": _PAYMENTS},
        (
            sink_records(
                {
                    "id": "c7",
                    "type": "debit",
                    "created_at": "2022-09-13T00:00:00",
                    "document": "80",
                    "payer": "Ada",
                    "amount": 3814,
                }
            ),
        ),
        {
            "orders.payments": TableContents(
                _PAYMENTS, (("c7", "debit", datetime(2022, 9, 13, tzinfo=UTC), "80", "Ada", 3814),)
            )
        },
    ),
    DocumentedConnector(
        "blog pizzas",
        {
            "connector.class": TABULAR,
            "topics": "completed-pizzas",
            "iceberg.tables": "rpc.pizzas",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.control.commit.interval-ms": "180000",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        },
        {},
        (
            sink_records(
                dict(
                    zip(
                        _PIZZAS,
                        ("340282366920938463463374607431768211455", 7, "bbq", "ham & bacon", "2024-01-01 10:00:00"),
                        strict=True,
                    )
                )
            ),
        ),
        {
            "rpc.pizzas": TableContents(
                dict.fromkeys(_PIZZAS, "string") | {"store_id": "long"},
                (("340282366920938463463374607431768211455", 7, "bbq", "ham & bacon", "2024-01-01 10:00:00"),),
            )
        },
    ),
    DocumentedConnector(
        "readme static routes",
        {
            "connector.class": APACHE,
            "topics": "events",
            "iceberg.tables": "default.events_list,default.events_create",
            "iceberg.tables.route-field": "type",
            "iceberg.table.default.events_list.route-regex": "list",
            "iceberg.table.default.events_create.route-regex": "create",
        },
        {"default.events_list": _EVENT, "default.events_create": _EVENT},
        (sink_records(event(1, "list"), event(2, "create"), event(3, "delete")),),
        {
            "default.events_list": TableContents(_EVENT, (row(1, "list"),)),
            "default.events_create": TableContents(_EVENT, (row(2, "create"),)),
        },
        filtered=1,
    ),
    DocumentedConnector(
        "readme dynamic routes",
        {"connector.class": APACHE, "topics": "events", **_DYNAMIC, "iceberg.tables.route-field": "db_table"},
        {"default.events_list": {"id": "long", "db_table": "string"}},
        (sink_records({"id": 1, "db_table": "default.events_list"}, {"id": 2, "db_table": "default.others"}),),
        {"default.events_list": TableContents({"id": "long", "db_table": "string"}, ((1, "default.events_list"),))},
        filtered=1,
    ),
    DocumentedConnector(
        "sink's test of rewritten topics",
        {
            "connector.class": APACHE,
            "topics": "events",
            "transforms": "route,origin",
            "transforms.route.type": f"{SMT}RegexRouter",
            "transforms.route.regex": ".*",
            "transforms.route.replacement": "test.smttbl",
            "transforms.origin.type": f"{SMT}InsertField$Value",
            "transforms.origin.topic.field": "srcTopic",
            **_DYNAMIC,
            "iceberg.tables.route-field": "srcTopic",
            "iceberg.control.commit.interval-ms": "1000",
        },
        {"test.smttbl": {**_EVENT, "srcTopic": "string"}},
        (sink_records(event(1, "a"), {**event(2, "b"), "ts": "2026-05-01T10:30:00Z"}),),
        {
            "test.smttbl": TableContents(
                {**_EVENT, "srcTopic": "string"}, ((*row(1, "a"), "test.smttbl"), (*row(2, "b"), "test.smttbl"))
            )
        },
    ),
    DocumentedConnector(
        "readme CopyValue and KafkaMetadata",
        {
            "connector.class": TABULAR,
            "topics": "events",
            "iceberg.tables": "shop.events",
            "transforms": "copyId,meta",
            "transforms.copyId.type": "io.tabular.iceberg.connect.transforms.CopyValue",
            "transforms.copyId.source.field": "id",
            "transforms.copyId.target.field": "id_copy",
            "transforms.meta.type": "io.tabular.iceberg.connect.transforms.KafkaMetadataTransform",
            "transforms.meta.field_name": "_kafka",
        },
        {
            "shop.events": {
                "id": "long",
                "id_copy": "long",
                "_kafka_offset_there": {"type": "long", "from": "_kafka_offset"},
            }
        },
        (sink_records({"id": 5}, {"id": 6, "more": [1, "a"]}),),
        {
            "shop.events": TableContents(
                {"id": "long", "id_copy": "long", "_kafka_offset_there": "long"}, ((5, 5, 0), (6, 6, 1))
            )
        },
    ),
    DocumentedConnector(
        "readme JsonToMap of whole objects",
        {
            "connector.class": APACHE,
            "topics": "events",
            "iceberg.tables": "shop.events",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter.schemas.enable": "",
            "transforms": "tomap",
            "transforms.tomap.type": "org.apache.iceberg.connect.transforms.JsonToMapTransform",
            "transforms.tomap.json.root": "true",
        },
        {"shop.events": {"payload": "map<string, string>"}},
        (sink_records({"a": 1, "b": {"c": "x"}}),),
        {"shop.events": TableContents({"payload": "map<string, string>"}, (([("a", "1"), ("b", '{"c":"x"}')],),))},
    ),
    DocumentedConnector(
        "readme JsonToMap behind a header",
        {
            "connector.class": APACHE,
            "topics": "events",
            "iceberg.tables": "shop.events",
            "iceberg.tables.auto-create-enabled": "true",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter.schemas.enable": "",
            "transforms": "header,tomap",
            "transforms.header.type": f"{SMT}InsertHeader",
            "transforms.header.header": "origin",
            "transforms.header.value.literal": "sink",
            "transforms.tomap.type": "org.apache.iceberg.connect.transforms.JsonToMapTransform",
        },
        {},
        (sink_records({"id": 1, "tags": ["a"], "more": {"n": 1.5}, "none": None}, {"id": 2, "ratio": 0.5}),),
        {
            "shop.events": TableContents(
                {"id": "long", "tags": "list<string>", "more": "map<string, string>", "ratio": "double"},
                ((1, ["a"], [("n", "1.5")], None), (2, None, None, 0.5)),
            )
        },
    ),
    DocumentedConnector(
        "Debezium's flattening with rewritten deletes",
        {
            "connector.class": APACHE,
            "topics": "inventory.customers",
            "iceberg.tables": "shop.customers",
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "transforms": "unwrap",
            "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
            "transforms.unwrap.drop.tombstones": "false",
            "transforms.unwrap.delete.handling.mode": "rewrite",
            "transforms.unwrap.add.fields": "op,table:origin,source.ts_ms",
            "transforms.unwrap.add.headers": "db",
        },
        {},
        (
            sink_records(
                _envelope("c", None, {"id": 1, "name": "Ada"}),
                _envelope("u", {"id": 1, "name": "Ada"}, {"id": 1, "name": "Eve"}),
                _envelope("d", {"id": 1, "name": "Eve"}, None),
                None,
            ),
        ),
        {
            "shop.customers": TableContents(
                {
                    "id": "long",
                    "name": "string",
                    "__op": "string",
                    "__origin": "string",
                    "__source_ts_ms": "long",
                    "__deleted": "string",
                },
                (
                    (1, "Ada", "c", "customers", 1_700_000_000_000, "false"),
                    (1, "Eve", "u", "customers", 1_700_000_000_000, "false"),
                    (1, "Eve", "d", "customers", 1_700_000_000_000, "true"),
                ),
            )
        },
        filtered=1,
    ),
    DocumentedConnector(
        "Kafka Connect's own transforms in one chain",
        {
            "connector.class": APACHE,
            "topics": "orders",
            "iceberg.tables": "shop.orders",
            "transforms": "flat,cast,names,time",
            "transforms.flat.type": f"{SMT}Flatten$Value",
            "transforms.flat.delimiter": "_",
            "transforms.cast.type": f"{SMT}Cast$Value",
            "transforms.cast.spec": "amount:float64",
            "transforms.names.type": f"{SMT}ReplaceField$Value",
            "transforms.names.renames": "customer_name:buyer",
            "transforms.names.blacklist": "noise",
            "transforms.time.type": f"{SMT}TimestampConverter$Value",
            "transforms.time.field": "at",
            "transforms.time.format": "yyyy-MM-dd HH:mm:ss",
            "transforms.time.target.type": "Timestamp",
        },
        {"shop.orders": {"id": "long", "amount": "double", "buyer": "string", "at": "timestamptz"}},
        (
            sink_records(
                {"id": 1, "amount": "1.5", "customer": {"name": "Ada"}, "noise": 1, "at": "2026-05-01 10:30:00"},
                {"id": 2, "amount": 2, "customer": {"name": "Eve"}, "noise": {}, "at": "2026-05-01 10:30:00"},
            ),
        ),
        {
            "shop.orders": TableContents(
                {"id": "long", "amount": "double", "buyer": "string", "at": "timestamptz"},
                ((1, 1.5, "Ada", FIRST), (2, 2.0, "Eve", FIRST)),
            )
        },
    ),
    DocumentedConnector(
        "readme MongoDB's documents",
        {
            "connector.class": TABULAR,
            "topics": "mongo.shop.users",
            "iceberg.tables": "shop.users",
            "transforms": "mongo,debezium",
            "transforms.mongo.type": "io.tabular.iceberg.connect.transforms.MongoDebeziumTransform",
            "transforms.mongo.array_handling_mode": "array",
            "transforms.debezium.type": "io.tabular.iceberg.connect.transforms.DebeziumTransform",
        },
        {"shop.users": {"_id": "string", "name": "string", "visits": "int"}},
        (
            sink_records(
                _document("c", None, '{"_id": {"$oid": "596e275826f08b2730779e1f"}, "name": "Ada", "visits": 3}'),
                _document("u", None, '{"_id": {"$oid": "596e275826f08b2730779e1f"}, "name": "Eve", "more": [1]}'),
            ),
        ),
        {
            "shop.users": TableContents(
                {"_id": "string", "name": "string", "visits": "int"},
                (("596e275826f08b2730779e1f", "Ada", 3), ("596e275826f08b2730779e1f", "Eve", None)),
            )
        },
    ),
    DocumentedConnector(
        "Postgres tables on GitHub",
        {
            "connector.class": TABULAR,
            "topics.regex": "cdc.commerce.*",
            "errors.log.enable": "true",
            "transforms": "debezium",
            "transforms.debezium.type": "io.tabular.iceberg.connect.transforms.DebeziumTransform",
            "transforms.debezium.cdc.target.pattern": "cdc.{db}_{table}",
            "iceberg.tables.cdc-field": "_cdc.op",
            "iceberg.tables.route-field": "_cdc.target",
            **_DYNAMIC,
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.evolve-schema-enabled": "true",
            "iceberg.tables.upsert-mode-enabled": "true",
            "iceberg.control.commit.interval-ms": "10000",
            "iceberg.control.commit.timeout-ms": "60000",
            "iceberg.table.cdc.commerce_account.id-columns": "user_id",
            "iceberg.table.cdc.commerce_product.id-columns": "product_id",
        },
        {
            "cdc.commerce_account": {"user_id": "long", "email": "string"},
            "cdc.commerce_product": {"product_id": "long", "price": "double"},
        },
        (
            sink_records(
                _envelope("c", None, {"user_id": 1, "email": "a@x"}, "account", "commerce"),
                _envelope("c", None, {"user_id": 2, "email": "b@x"}, "account", "commerce"),
                _envelope("r", None, {"product_id": 1, "price": 2}, "product", "commerce"),
            ),
            sink_records(
                _envelope("u", {"user_id": 1, "email": "a@x"}, {"user_id": 1, "email": "c@x"}, "account", "commerce"),
                _envelope("d", {"user_id": 2, "email": "b@x"}, None, "account", "commerce"),
                _envelope("u", None, {"product_id": 1, "price": 2.5}, "product", "commerce"),
                None,
            ),
        ),
        {
            "cdc.commerce_account": TableContents({"user_id": "long!", "email": "string"}, ((1, "c@x"),)),
            "cdc.commerce_product": TableContents({"product_id": "long!", "price": "double"}, ((1, 2.5),)),
        },
        filtered=1,
        is_merged=True,
    ),
    DocumentedConnector(
        "readme changes of AWS DMS",
        {
            "connector.class": TABULAR,
            "topics": "dms",
            "iceberg.tables": "shop.orders",
            "transforms": "dms",
            "transforms.dms.type": "io.tabular.iceberg.connect.transforms.DmsTransform",
            "iceberg.tables.cdcField": "_cdc.op",
            "iceberg.table.shop.orders.idColumns": "id",
        },
        {"shop.orders": {"id": "long", "note": "string"}},
        (
            sink_records(
                _dms("load", {"id": 1, "note": "a"}),
                _dms("insert", {"id": 2, "note": "b"}),
                {"metadata": {"operation": "create-table", "record-type": "control"}},
                _dms("update", {"id": 1, "note": "c", "BI_id": 1}),
                _dms("delete", {"id": 2}),
            ),
        ),
        {"shop.orders": TableContents({"id": "long!", "note": "string"}, ((1, "c"),))},
        filtered=1,
        is_merged=True,
    ),
    DocumentedConnector(
        "sink's test of upserts",
        {
            "connector.class": TABULAR,
            "topics": "events",
            "iceberg.tables": "shop.events",
            "iceberg.tables.upsertModeEnabled": "true",
            "iceberg.tables.default-id-columns": "id",
        },
        {"shop.events": _EVENT},
        (sink_records(event(1, "a"), event(2, "b")), sink_records(event(1, "c"), None)),
        {"shop.events": TableContents(_KEYED, (row(2, "b"), row(1, "c")))},
        filtered=1,
        is_merged=True,
    ),
    DocumentedConnector(
        "sink's test of changes",
        {
            "connector.class": APACHE,
            "topics": "events",
            "iceberg.tables": "shop.events",
            "iceberg.tables.cdc-field": "op",
            "iceberg.table.shop.events.id-columns": "id",
            "iceberg.tables.default-partition-by": "days(ts)",
        },
        {"shop.events": _EVENT},
        (
            sink_records(
                {**event(1, "a"), "op": "I"},
                {**event(2, "b"), "op": "I"},
                {**event(3, "c"), "op": "i"},
                {**event(1, "a"), "op": "D"},
                {**event(3, "d"), "op": "U"},
            ),
        ),
        {"shop.events": TableContents(_KEYED, (row(2, "b"), row(3, "d")), ("ts_day day",))},
        is_merged=True,
    ),
)
"""Connectors; at least one per kind of route, of transform and of change."""
