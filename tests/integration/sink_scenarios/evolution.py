"""Tables that follow their records."""

from __future__ import annotations

from decimal import Decimal

from tests.integration.sink_scenarios.scenario import (
    FIRST,
    TIMESTAMP,
    Scenario,
    TableContents,
    event,
    millis,
    schema,
    sink_records,
    struct,
    with_schema,
)

_OLD = "destinations: [{table: shop.events, columns: {id: int, type: string}, evolve: full}]"

_DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "3"},
}

_NARROW = struct(a=schema("int32"), b=schema("float32"), s=struct(a=schema("int32"), b=schema("float32")))
_WIDE = struct(a=schema("int64"), b=schema("float64"), s=struct(a=schema("int64"), b=schema("float64")))

EVOLUTION = (
    Scenario(
        "new fields without a schema",
        "TestIntegration.testIcebergSinkSchemaEvolution without a schema",
        _OLD,
        (sink_records({"id": 1, "type": "old"}), sink_records(event(2, "new") | {"op": None})),
        {
            "shop.events": TableContents(
                {"id": "int", "type": "string", "payload": "string", "ts": "long"},
                ((1, "old", None, None), (2, "new", "hello world!", millis(FIRST))),
            )
        },
    ),
    Scenario(
        "new and wider fields with a schema",
        "TestIntegration.testIcebergSinkSchemaEvolution with a schema",
        f"value: {{format: json-envelope}}\n{_OLD}",
        (
            sink_records(with_schema(struct(id=schema("int32"), type=schema("string")), {"id": 1, "type": "old"})),
            sink_records(
                with_schema(
                    struct(
                        id=schema("int64"),
                        type=schema("string"),
                        ts=schema(TIMESTAMP),
                        payload=schema("string"),
                        op=schema("string"),
                    ),
                    event(2, "new") | {"op": None},
                )
            ),
        ),
        {
            "shop.events": TableContents(
                {"id": "long", "type": "string", "op": "string", "payload": "string", "ts": "timestamptz"},
                ((1, "old", None, None, None), (2, "new", None, "hello world!", FIRST)),
            )
        },
    ),
    Scenario(
        "a field that appears later",
        "RecordConverter: a field without a column, evolve-schema-enabled",
        "destinations: [{table: shop.events}, {table: shop.ids, columns: {id: long}}]",
        (
            sink_records(*({"id": n} for n in range(20))),
            sink_records(*({"id": n, "price": n / 4} for n in range(20, 25))),
        ),
        {
            "shop.events": TableContents(
                {"id": "long", "price": "double"}, tuple((n, n / 4 if n >= 20 else None) for n in range(25))
            ),
            "shop.ids": TableContents({"id": "long"}, tuple((n,) for n in range(25))),
        },
    ),
    Scenario(
        "new fields in structs, lists and maps",
        "TestRecordConverter.testMissingColumnDetectionMapNested, …MapListValue, …StructMapValue",
        """
destinations:
  - table: shop.events
    columns: {s: "struct<a: long>", l: "list<struct<a: long>>", m: "map<string, struct<a: long>>"}
    evolve: add
""",
        (
            sink_records(
                {"s": {"a": 1}, "l": [{"a": 1}], "m": {"k": {"a": 1}}},
                {"s": {"a": 2, "b": {"c": "x"}}, "l": [{"a": 2}, {"b": True}], "m": {"k": {"b": 1.5}, "n": None}},
            ),
        ),
        {
            "shop.events": TableContents(
                {
                    "s": "struct<a: long, b: struct<c: string>>",
                    "l": "list<struct<a: long, b: boolean>>",
                    "m": "map<string, struct<a: long, b: double>>",
                },
                (
                    ({"a": 1, "b": None}, [{"a": 1, "b": None}], [("k", {"a": 1, "b": None})]),
                    (
                        {"a": 2, "b": {"c": "x"}},
                        [{"a": 2, "b": None}, {"a": None, "b": True}],
                        [("k", {"a": None, "b": 1.5}), ("n", None)],
                    ),
                ),
            )
        },
    ),
    Scenario(
        "values that tell no type",
        "TestSchemaUtils.testInferIcebergTypeEmpty, TestRecordConverter.testMissingColumnDetectionMap with nulls",
        "destinations: [{table: shop.events}]",
        (sink_records({"id": 1, "a": None, "b": [], "c": {}, "d": [{}], "e": [None], "f": {"a": None}}),),
        {"shop.events": TableContents({"id": "long"}, ((1,),))},
    ),
    Scenario(
        "wider types, also within a struct",
        "TestRecordConverter.testEvolveTypeDetectionStruct, testEvolveTypeDetectionStructNested",
        """
value: {format: json-envelope}
destinations: [{table: shop.events, columns: {a: int, b: float, s: "struct<a: int, b: float>"}, evolve: widen}]
""",
        (
            sink_records(with_schema(_NARROW, {"a": 1, "b": 0.5, "s": {"a": 1, "b": 0.5}})),
            sink_records(with_schema(_WIDE, {"a": 2**40, "b": 0.1, "s": {"a": 2**41, "b": 0.2}})),
        ),
        {
            "shop.events": TableContents(
                {"a": "long", "b": "double", "s": "struct<a: long, b: double>"},
                ((1, 0.5, {"a": 1, "b": 0.5}), (2**40, 0.1, {"a": 2**41, "b": 0.2})),
            )
        },
    ),
    Scenario(
        "a required column becomes optional",
        "TestSchemaUtils.testApplySchemaUpdates with MakeOptional",
        """
destinations:
  - {table: shop.events, columns: {id: {type: long, required: true}, name: {type: string, required: true}}, evolve: full}
  - {table: shop.strict, columns: {id: {type: long, required: true}, name: {type: string, required: true}}}
""",
        (sink_records({"id": 1, "name": "a"}), sink_records({"id": 2, "name": None}, {"id": 3})),
        {
            "shop.events": TableContents({"id": "long!", "name": "string"}, ((1, "a"), (2, None), (3, None))),
            "shop.strict": TableContents({"id": "long!", "name": "string!"}, ((1, "a"),)),
        },
        letters=((1, "shop.strict", "MISSING_REQUIRED"), (2, "shop.strict", "MISSING_REQUIRED")),
    ),
    Scenario(
        "a decimal column",
        "TestSinkWriter.testEvolveAddsFractionalDecimalColumn",
        "value: {format: json-envelope}\ndestinations: [{table: shop.events, columns: {id: long}, evolve: add}]",
        (sink_records(with_schema(struct(id=schema("int64"), price=schema(_DECIMAL)), {"id": 1, "price": "AQ=="})),),
        {"shop.events": TableContents({"id": "long", "price": "decimal(38, 3)"}, ((1, Decimal("0.001")),))},
    ),
    Scenario(
        "nested fields of a null",
        "TestRecordConverter.testNestedSchemaEvolutionStructWithNullValue, …AcrossTwoRecords",
        "value: {format: json-envelope}\ndestinations: [{table: shop.events, columns: {id: long}, evolve: add}]",
        (
            sink_records(
                with_schema(struct(id=schema("int64"), at=struct(city=schema("string"))), {"id": 1, "at": None}),
                with_schema(struct(id=schema("int64"), at=struct(zip=schema("string"))), {"id": 2, "at": {"zip": "x"}}),
            ),
        ),
        {
            "shop.events": TableContents(
                {"id": "long", "at": "struct<city: string, zip: string>"},
                ((1, None), (2, {"city": None, "zip": "x"})),
            )
        },
    ),
    Scenario(
        "evolution is off",
        "RecordConverter: a field without a column, evolve-schema-enabled false",
        "destinations: [{table: shop.events, columns: {id: int}}]",
        (sink_records({"id": 1, "name": "x"}, {"id": 2**40}),),
        {"shop.events": TableContents({"id": "int"}, ((1,),))},
        letters=((1, None, "OUT_OF_RANGE"),),
    ),
    Scenario(
        "types that do not go together",
        "RecordConverter: an exception, and the task fails",
        """
destinations:
  - {table: shop.events, columns: {id: long, price: long}, evolve: full}
  - {table: shop.beside, columns: {id: long, price: long}, evolve: full, on_incompatible: variant_column}
""",
        (sink_records({"id": 1, "price": 1}), sink_records({"id": 2, "price": "much"}, {"id": 3, "price": 3})),
        {
            "shop.events": TableContents({"id": "long", "price": "long"}, ((1, 1), (3, 3))),
            "shop.beside": TableContents(
                {"id": "long", "price": "long", "price__string": "string"},
                ((1, 1, None), (2, None, "much"), (3, 3, None)),
            ),
        },
        letters=((1, "shop.events", "WRONG_TYPE"),),
    ),
)
