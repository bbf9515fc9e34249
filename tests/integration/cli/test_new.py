"""`frazil peek` and `frazil new`: what is shown of a topic, and pipeline files that land every record of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from tests.produce import produce
from tests.registry_server import RegistryServer

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
COUNT = 60


def outgoing(value: object, key: object = None, **headers: str) -> OutgoingRecord:
    def written(part: object) -> bytes | None:
        return part if part is None or isinstance(part, bytes) else json.dumps(part).encode()

    return OutgoingRecord(written(key), written(value), tuple((name, text.encode()) for name, text in headers.items()))


def orders(_: str) -> Iterable[OutgoingRecord]:
    """Numbers of two kinds, a list, an object, and a text in place of a number: as documents of a web shop are."""
    for n in range(COUNT):
        amount: Any = n / 4 if n % 2 else n
        yield outgoing(
            {"id": n, "amount": "many" if n == 7 else amount, "tags": ["a"], "at": {"city": "Ulm"}}, {"id": n}
        )


def avro(registry: str) -> Iterable[OutgoingRecord]:
    """Values that name their schema, under keys that are numbers of eight bytes."""
    context = SerializationContext(f"t-{uuid4().hex}", MessageField.VALUE)
    with SchemaRegistryClient({"url": registry, "timeout": 30}) as client:
        serializer = AvroSerializer(client, json.dumps(ORDER))
        for n in range(COUNT):
            value = serializer({"id": n, "paid": 1_777_000_000_000 + n, "note": None}, context)
            yield outgoing(value, n.to_bytes(8, "big"))


def debezium(_: str) -> Iterable[OutgoingRecord]:
    """Rows that come, change and go."""
    for n in range(COUNT):
        row, op = {"id": n // 3, "name": f"name {n}"}, ("c", "u", "d")[n % 3]
        change = {"before": row if op != "c" else None, "after": row if op != "d" else None}
        yield outgoing({**change, "source": {"table": "customers", "lsn": n}, "op": op, "ts_ms": n}, {"id": n // 3})


def delimited(_: str) -> Iterable[OutgoingRecord]:
    """Lines with quotes, under a key that is a text."""
    return (outgoing(f'{n};"Ulm; Mitte";{n}.5'.encode(), b"store") for n in range(COUNT))


def cloud_events(_: str) -> Iterable[OutgoingRecord]:
    """Attributes in headers, the data as the value."""
    for n in range(COUNT):
        yield outgoing({"id": n}, None, ce_specversion="1.0", ce_type="order.created", ce_id=f"e{n}", ce_source="/shop")


TOPICS = {
    "json": (orders, {"value": {"format": "json", "casts": "text"}}),
    "avro": (avro, {"value": {"format": "avro", "registry": "main"}, "key": {"format": "long"}}),
    "debezium": (debezium, {"value": {"format": "json"}}),
    "delimited": (delimited, {"key": {"format": "string"}}),
    "cloudevents": (cloud_events, {"value": {"format": "json"}}),
}
COLUMNS = {
    "json": {"id": "long", "amount": "string", "tags": "list<string>", "at": "struct<city: string>"},
    "avro": {
        "id": "long",
        "paid": "timestamptz",
        "note": "string",
        "record_key": {"type": "long", "part": "key", "from": "value"},
    },
    "debezium": {"id": {"type": "long", "required": True}, "name": "string"},
    "delimited": {
        "field_1": "string",
        "field_2": "string",
        "field_3": "string",
        "record_key": {"type": "string", "part": "key", "from": "value"},
    },
    "cloudevents": {
        "id": "long",
        **{name: {"type": "string", "part": "header"} for name in ("ce_id", "ce_source", "ce_specversion", "ce_type")},
    },
}


@pytest.fixture
def shop(place: Place, cluster: Cluster, registry: RegistryServer) -> Callable[[Iterable[OutgoingRecord]], Place]:
    """A place whose settings know the registry and whose topic holds records: `shop(records)`."""

    def make(records: Iterable[OutgoingRecord]) -> Place:
        settings = place.root / "settings.yaml"
        settings.write_text(f"{settings.read_text()}\nregistries: {{main: {{url: {registry.url}}}}}\n")
        create_topic(cluster, place.topic, 2)
        produce(cluster, place.topic, records)
        return place

    return make


def proposed(place: Place, *options: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `frazil new` tells a program, and the file."""
    proposal = place.json("new", "made", "--topic", place.topic, "--table", "shop.made", *options)
    assert proposal["problems"] == []
    return proposal, yaml.safe_load(Path(proposal["file"]).read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", TOPICS)
def test_proposed_file_lands_every_record(kind: str, shop: Callable[..., Place], registry: RegistryServer) -> None:
    """The file is valid, says format, columns and keys, and a run under it has no dead letter; verify finds each record."""
    records, expected = TOPICS[kind]
    place = shop(records(registry.url))

    proposal, file = proposed(place)
    ran = place.json("run", "made")
    place.succeed("verify", "made")

    assert {name: file[name] for name in expected} == expected
    assert file["destinations"][0]["columns"] == COLUMNS[kind]
    assert ("of several types" in Path(proposal["file"]).read_text(encoding="utf-8")) == (kind == "json")
    assert (proposal["counts"]["read"], proposal["counts"]["dead"]) == (COUNT, 0)
    assert (ran["read"], ran["dead"]) == (COUNT, 0)
    assert ran["written"] == proposal["counts"]["written"] > 0


@pytest.mark.full
def test_changes_are_merged_where_there_is_spark(shop: Callable[..., Place]) -> None:
    """With an engine in the settings a table of changes has one row per key. `make test` lands them as a history."""
    fetch(Home.resolve(), "spark")
    place = shop(debezium(""))
    settings = place.root / "settings.yaml"
    settings.write_text(settings.read_text() + "engines: {spark: {master: 'local[1]', connection: frazil_spark}}\n")

    _, file = proposed(place)
    ran = place.json("run", "made")
    place.succeed("verify", "made")

    assert (file["engine"], file["destinations"][0]["write"]) == ("spark", "cdc")
    assert (ran["read"], ran["dead"]) == (COUNT, 0)


def test_secrets_and_references_of_records_stay_in_the_topic(shop: Callable[..., Place]) -> None:
    """A value is never printed or kept, a name that looks like a reference is none, and no control character gets out."""
    place = shop([outgoing({"password": "hunter2", "${env:HOME}": 1, "a\x1b[31m": 2, "ok": 3}) for _ in range(9)])

    ended = place.succeed("new", "made", "--topic", place.topic)
    written = (place.root / "pipelines" / "made.yaml").read_text(encoding="utf-8")

    assert "password: string" in ended.stdout
    assert not {text for text in ("hunter2", "env:HOME", "\x1b") if text in ended.stdout + ended.stderr + written}
    assert place.json("run", "made")["written"] == 9


def test_name_of_a_field_adds_no_line_to_the_file(shop: Callable[..., Place]) -> None:
    """The comment names the field that repeats the keys, whose name a producer chose."""
    name = 'id\nowner: evil\ndescription: "\\x24{env:SECRET}"\n#' + "x" * 100_000
    place = shop([outgoing({name: f"k{n}", "id": n}, f"k{n}".encode()) for n in range(9)])

    proposal, file = proposed(place)
    text = Path(proposal["file"]).read_text(encoding="utf-8")

    assert not {"owner", "description"} & file.keys()
    assert [line[0] for line in text.splitlines()[:3]] == ["#", "#", "#"]
    assert len(text) < 10_000


def test_last_record_is_shown_though_markers_of_transactions_follow(
    shop: Callable[..., Place], cluster: Cluster
) -> None:
    """The last offset of a topic that transactions write is never a record."""
    place = shop([])
    producer = Producer({"bootstrap.servers": cluster.properties["bootstrap.servers"], "transactional.id": place.topic})
    producer.init_transactions()
    for n in range(3):
        producer.begin_transaction()
        producer.produce(place.topic, b'{"id": %d}' % n, partition=0)
        producer.commit_transaction()

    assert place.json("peek", place.topic, "--count", "1")["value"] == '{"id": 2}'


def test_peek_at_an_empty_topic_says_so(shop: Callable[..., Place]) -> None:
    """`frazil new` sends people there."""
    place = shop([])

    assert "no record" in place.succeed("peek", place.topic).stdout


def test_key_that_values_repeat_makes_no_column(shop: Callable[..., Place]) -> None:
    """Most keys are an id of their record; where there is no column of the key, verify compares each value."""
    place = shop([outgoing({"id": f"o-{n}", "store": n % 7}, f"o-{n}".encode()) for n in range(20)])

    _, file = proposed(place)
    place.succeed("run", "made")

    assert "key" not in file
    assert "record_key" not in file["destinations"][0]["columns"]
    assert "made: clean, 20 records" in place.succeed("verify", "made").stdout


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([outgoing({"a.b": f"k{n}", "id": n}, f"k{n}".encode()) for n in range(9)], id="key in no column"),
        pytest.param(
            [outgoing({"op": "c", "before": None, "after": {"id": n}, "source": {}}, {"id": n / 2}) for n in range(9)],
            id="changes whose key is a fraction",
        ),
        pytest.param(
            [outgoing({"op": "c", "after": {"x": n}, "source": {}}, {"id": {"n": n}}) for n in range(9)],
            id="nested key",
        ),
        pytest.param(
            [outgoing({"op": "c", "after": {"a\nb": n, "x": n}, "source": {"t": 1}}, {"a\nb": n}) for n in range(9)],
            id="changes whose key has a name that no column takes",
        ),
        pytest.param(
            [outgoing({"_kafka_offset": n, "_rescued": 1, "": 2}, {"_kafka_topic": n}) for n in range(9)],
            id="own names",
        ),
    ],
)
def test_odd_topic_gets_a_file_that_lands_it(records: list[OutgoingRecord], shop: Callable[..., Place]) -> None:
    """A producer chooses names and keys: the command ends with a file, whatever they are."""
    place = shop(records)

    proposal, _ = proposed(place)
    ran = place.json("run", "made")

    assert (ran["written"], ran["dead"]) == (9, 0)
    assert proposal["counts"]["written"] == 9


def test_dead_letters_are_estimated(shop: Callable[..., Place]) -> None:
    """What a run will refuse to read is known before there is a run, by its code."""
    place = shop([outgoing(b"broken" if n % 10 == 3 else {"id": n}) for n in range(50)])

    proposal, _ = proposed(place)

    assert (proposal["counts"]["written"], proposal["dead_codes"]) == (45, {"INVALID_JSON": 5})


def test_no_file_is_replaced(shop: Callable[..., Place]) -> None:
    """Nor is a pipeline whose file has another name."""
    place = shop([outgoing({"id": 1})])
    file = place.root / "pipelines" / "orders.yaml"
    before = file.read_text()
    file.rename(file.with_name("other.yaml"))

    refused = place.frazil("new", "orders", "--topic", place.topic)

    assert refused.returncode == 78
    assert "exists already" in refused.stderr
    assert file.with_name("other.yaml").read_text() == before
    assert not file.exists()


def test_empty_topic_says_so(shop: Callable[..., Place]) -> None:
    """There is nothing to propose from."""
    place = shop([])

    refused = place.frazil("new", "made", "--topic", place.topic)

    assert refused.returncode == 78
    assert "no record with a value" in refused.stderr
    assert not (place.root / "pipelines" / "made.yaml").exists()


def test_hostile_record_is_shown_on_its_own_lines(shop: Callable[..., Place]) -> None:
    """A producer controls neither the terminal nor what looks like a line of the command, and no record fills the screen."""
    value = b"\x1b]0;owned\x07 next: rm -rf /\n  value    forged\r" + b"x" * 5_000
    place = shop([OutgoingRecord(b"\x9b31m\xff", value, (("n\x1b", None), ("h", b"\x1b[2J")))])

    shown = place.succeed("peek", place.topic).stdout

    assert shown.isprintable() or set(filter(lambda c: not c.isprintable(), shown)) == {"\n"}
    assert len(shown.splitlines()) == 5
    assert max(map(len, shown.splitlines())) < 300
    assert r"\x1b]0;owned\x07 next: rm -rf /\n  value    forged\r" in shown
    assert "0x9b33316dff" in shown
    assert f"({len(value):,} bytes)" in shown


def test_last_records_are_shown_or_those_from_a_place_on(shop: Callable[..., Place]) -> None:
    """So many as were asked for, with their coordinates and what their format seems to be; one line each for programs."""
    place = shop(OutgoingRecord(None, b'{"id": %d}' % n, timestamp_ms=1_777_000_000_000 + n) for n in range(40))

    def values(*options: str) -> list[str]:
        lines = place.succeed("peek", place.topic, "--json", *options).stdout.splitlines()
        return [json.loads(line)["value"] for line in lines]

    assert values("--count", "3") == ['{"id": 37}', '{"id": 38}', '{"id": 39}']
    assert values("--count", "2", "--from", "earliest") == ['{"id": 0}', '{"id": 1}']
    first = place.succeed("peek", place.topic, "--count", "1", "--from", "earliest").stdout.splitlines()
    assert first[0].startswith(f"{place.topic}/")
    assert first[0].endswith("json, 9 bytes")
    assert first[1:] == ["  key      null", '  value    {"id": 0}']
