"""Values of formats with types, decoded keys and transformed records: what is altered in a row is found by its column."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer

Make = Callable[..., Any]

SCHEMA = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "title", "type": ["null", "string"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
AVRO = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    dead_letters: {tolerance: all}
    value: {format: avro, schema: '%s'}
    key: {format: long}
    destinations:
      - table: shop.orders
        columns:
          id: {type: long, required: true}
          title: string
          price: decimal(10,2)
          tags: list<string>
          customer: {type: long, from: value, part: key}
"""
TRANSFORMED = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    dead_letters: {tolerance: all}
    value: {fields: {id: long, name: string, amount: string}}
    transforms:
      - {type: Filter, when: {predicate: HasHeaderKey, name: test}}
      - {type: ReplaceField, renames: "name:title"}
      - {type: Cast, spec: "amount:int64"}
      - {type: InsertField, static.field: origin, static.value: web}
    destinations:
      - {table: shop.orders, columns: {id: long, title: string, amount: long, origin: string}}
"""


def avro_values() -> Iterator[bytes]:
    from decimal import Decimal

    for number in range(4):
        stream = io.BytesIO()
        row = {"id": number, "title": f"t{number}", "price": Decimal(number), "tags": ["a", "b"]}
        fastavro.schemaless_writer(stream, SCHEMA, row)
        yield stream.getvalue()


def produce(orders: Any, records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]) -> None:
    producer = Producer(dict(orders.cluster.properties))
    for key, value, headers in records:
        producer.produce(orders.topic, value, key, headers=headers, partition=0)
    producer.flush(10)


@pytest.fixture
def avro(shop: Make) -> Any:
    """Four rows, a bad value at offset 4, a tombstone at 5, a bad key at 6, a row without key at 7."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(AVRO % (plain.topic, json.dumps(SCHEMA)))
    values = list(avro_values())
    keyed = [((90 + index).to_bytes(8, "big"), value, []) for index, value in enumerate(values)]
    produce(orders, [*keyed, (None, b"\xff", []), (None, None, []), (b"key", values[0], []), (None, values[1], [])])
    orders.run()
    return orders


@pytest.fixture
def transformed(shop: Make) -> Any:
    """Three rows; offset 1 is filtered by its header, 2 is dead: its amount is no number; 4 is a tombstone."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(TRANSFORMED % plain.topic)
    values = [
        json.dumps({"id": number, "name": f"n{number}", "amount": "x" if number == 2 else str(number)}).encode()
        for number in range(6)
    ]
    headers: list[list[tuple[str, bytes]]] = [[("test", b"")] if number == 1 else [] for number in range(6)]
    produce(orders, [(None, None if index == 4 else value, headers[index]) for index, value in enumerate(values)])
    orders.run()
    return orders


def found_in(check: Make, orders: Any) -> list[tuple[str, int | None]]:
    return [(difference.kind, difference.offset) for difference in check(orders).differences]


@pytest.mark.parametrize(("name", "counts"), [("avro", (5, 2, 1)), ("transformed", (3, 1, 2))])
def test_typed_values_are_compared_and_clean(
    request: pytest.FixtureRequest, check: Make, name: str, counts: tuple[int, ...]
) -> None:
    """Every cell is known; what was left out is told by the file, not by the ledger's count."""
    report = check(request.getfixturevalue(name))

    assert report.is_clean, list(map(str, report.differences))
    assert (report.values_compared, report.cells_not_compared) == (True, {})
    (partition,) = report.partitions
    assert (partition.rows, partition.letters, partition.filtered) == counts


@pytest.mark.parametrize(
    ("name", "change", "difference"),
    [
        ("avro", {"title": None}, "expected title=t3, found title=null"),
        ("avro", {"price": 7}, "expected price=3.00, found price=7.00"),
        ("avro", {"tags": ["a"]}, "expected tags=('a', 'b'), found tags=('a',)"),
        ("avro", {"customer": 1}, "expected customer=93, found customer=1"),
        ("transformed", {"title": "other"}, "expected title=n3, found title=other"),
        ("transformed", {"amount": None}, "expected amount=3, found amount=null"),
        ("transformed", {"origin": "mail"}, "expected origin=web, found origin=mail"),
    ],
)
def test_altered_value_is_found(
    request: pytest.FixtureRequest, check: Make, table: Make, name: str, change: dict[str, Any], difference: str
) -> None:
    """The difference names the record, the column and both values, a decimal with its scale."""
    orders = request.getfixturevalue(name)
    table(orders).overwrite(lambda row: row | (change if row["_kafka_offset"] == 3 else {}))

    (found,) = check(orders).differences

    assert (found.kind, found.offset) == ("changed", 3)
    assert str(found).endswith(difference)


@pytest.mark.parametrize("name", ["avro", "transformed"])
def test_deleted_row_is_named_by_its_own_offset(
    request: pytest.FixtureRequest, check: Make, table: Make, name: str
) -> None:
    """Not by a tombstone or a filtered record, which have no outcome either."""
    orders = request.getfixturevalue(name)
    table(orders).delete(id=3)

    assert found_in(check, orders) == [("missing", 3)]


def test_row_of_a_filtered_record_is_found(transformed: Any, check: Make, table: Make) -> None:
    """A record that a transform leaves out has no row."""
    row = table(transformed).rows().to_pylist()[0]
    table(transformed).append([row | {"_kafka_offset": 1}])

    assert ("unexpected", 1) in found_in(check, transformed)


def test_dead_letter_of_good_record_is_found(avro: Any, check: Make, table: Make) -> None:
    """A value that its schema reads is no dead letter."""
    letters = table(avro, "shop.orders__dead_letters")
    (row,) = [avro_row for avro_row in table(avro).rows().to_pylist() if avro_row["id"] == 3]
    letter = letters.rows().to_pylist()[0] | {
        "offset": 3,
        "key": (93).to_bytes(8, "big"),
        "value": list(avro_values())[3],
    }
    letters.append([letter | {"timestamp": row["_kafka_timestamp"]}])
    table(avro).delete(id=3)

    assert ("changed", 3) in found_in(check, avro)


KEYED = """
    name: orders
    source: {topics: [%s]}
    engine: inline
    dead_letters: {tolerance: all}
    key: {format: string}
    destinations:
      - {table: shop.orders, evolve: widen, columns: {id: int, customer: {type: string, from: value, part: key}}}
"""


def test_values_of_columns_that_keyed_records_brought_are_compared(shop: Make, check: Make, table: Make) -> None:
    """As `frazil new` writes a file of JSON values with other keys: also where columns came, got wider or don't fit."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(KEYED % plain.topic)
    batches: list[list[dict[str, Any]]] = [
        [{"id": 1, "tags": [], "at": {}, "size": 1}, {"id": 2, "at": {"x": 1, "more": []}, "customer": "of the value"}],
        [{"id": 2**40, "tags": ["a"], "at": {"x": 1.5}, "size": "large"}, {"id": "no number"}, {"size": 7.5}],
        [{"id": 6, "at": {"x": 2, "more": [{"y": True}]}, "tags": [], "note": None}],
    ]
    for values in batches:
        produce(orders, [(f"c{index}".encode(), json.dumps(value).encode(), []) for index, value in enumerate(values)])
        orders.run()

    report = check(orders)
    assert report.is_clean, list(map(str, report.differences))
    assert (report.values_compared, report.cells_not_compared) == (True, {})
    (partition,) = report.partitions
    assert (partition.rows, partition.letters) == (5, 1)

    changes: dict[int, dict[str, Any]] = {0: {"customer": "c9"}, 1: {"id": None}, 2: {"tags": ["b"]}, 5: {"at": None}}
    table(orders).overwrite(lambda row: row | changes.get(row["_kafka_offset"], {}))
    assert found_in(check, orders) == [("changed", offset) for offset in changes]


def test_row_of_a_broken_value_is_found_after_a_column_came(shop: Make, check: Make, table: Make) -> None:
    """Whatever the columns were then: no row comes of what nobody can decode."""
    plain = shop(partitions=1)
    orders = plain.with_pipeline(KEYED % plain.topic)
    for values in [b'{"id": 1, "size": 1}', b"{"], [b'{"id": 2, "note": "x"}']:
        produce(orders, [(b"c", value, []) for value in values])
        orders.run()
    letters, row = table(orders, "shop.orders__dead_letters"), table(orders).rows().to_pylist()[0]
    (letter,) = letters.rows().to_pylist()
    letters.delete(offset=1)
    table(orders).append([row | {"_kafka_offset": 1, "_kafka_timestamp": letter["timestamp"], "_frazil_batch": 1}])

    assert ("changed", 1) in found_in(check, orders)
