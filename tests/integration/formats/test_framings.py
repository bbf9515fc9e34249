"""Values behind the frames of AWS Glue and of Apicurio's own serializers, from a topic to the table, and what verify says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import boto3
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from frazil.kafka.client.cluster import OutgoingRecord
from frazil.records.formats.framing import MAX_UNPACKED
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from tests.glue_server import KEYS, glue_server
from tests.operations import assert_clean
from tests.registry_server import RegistryServer

MakeStore = Callable[..., Any]
FreePorts = Callable[[int], list[int]]
ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
AVRO = {"format": "avro", "registry": "main"}
COLUMNS = {"id": "long"}


@pytest.fixture(scope="module")
def glue(free_ports: FreePorts) -> Iterator[str]:
    with glue_server(*free_ports(1)) as uri:
        yield uri


def schemas(uri: str) -> tuple[bytes, bytes]:
    """UUIDs of two schemas in Glue; the second one has a field more."""
    names = {"region_name": KEYS["glue.region"], "aws_access_key_id": "tests", "aws_secret_access_key": "tests"}
    name = f"s-{uuid4().hex}"
    wider = json.loads(ORDER)
    wider["fields"].append({"name": "note", "type": "string"})
    with closing(boto3.client("glue", endpoint_url=uri, **names)) as client:
        messages = [
            client.create_schema(
                SchemaName=f"{name}-{number}", DataFormat="AVRO", Compatibility="NONE", SchemaDefinition=text
            )
            for number, text in enumerate((ORDER, json.dumps(wider)))
        ]
    first, second = (UUID(one["SchemaVersionId"]).bytes for one in messages)
    return first, second


def test_values_of_glue_land_and_hostile_frames_are_letters(store: MakeStore, glue: str) -> None:
    """Stored and packed, of two schemas; what is no frame, or unpacks to too much, costs its own record."""
    first, second = schemas(glue)
    values = [
        b"\3\0" + first + b"\x02",
        b"\3\5" + second + zlib.compress(b"\x04\x08gift"),
        b"\3\5" + first + zlib.compress(bytes(MAX_UNPACKED), 9),
        b"\2\0" + first + b"\x02",
        b"\3\0" + first[:9],
        b"\3\0" + uuid4().bytes + b"\x02",
        b"\3\0" + first + b"\x06",
    ]
    shop = store(AVRO, COLUMNS | {"note": "string"}, main_registry={"framing": "glue", "url": glue, "properties": KEYS})

    rows, letters = shop.lands(values)

    assert [(row["id"], row["note"]) for row in rows] == [(1, None), (2, "gift"), (3, None)]
    assert letters == [(2, "INVALID_WIRE"), (3, "INVALID_WIRE"), (4, "INVALID_WIRE"), (5, "UNKNOWN_SCHEMA")]
    assert_clean(shop.shop)


def of_apicurio(registry: RegistryServer, framing: str) -> dict[str, Any]:
    return {"framing": framing, "url": registry.url}


def test_values_of_apicurio_land_by_ids_in_front_and_in_headers(store: MakeStore, registry: RegistryServer) -> None:
    """Keys too; an id of the other kind is a letter, not another schema."""
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        content = client.register_schema(f"t-{uuid4().hex}", Schema(ORDER, "AVRO")).to_bytes(8, "big")
    records = [
        OutgoingRecord(b"\0" + content + b"\x0e", b"\0" + content + b"\x02"),
        OutgoingRecord(b"\x10", b"\x04", (("apicurio.key.contentId", content), ("apicurio.value.contentId", content))),
        OutgoingRecord(None, b"\x06", (("apicurio.value.globalId", content),)),
        OutgoingRecord(None, b"\0" + content[4:] + b"\x08"),
        OutgoingRecord(None, b"\0" + b"\xff" * 8 + b"\x08"),
    ]
    columns = COLUMNS | {"customer": {"type": "long", "from": "id", "part": "key"}}
    shop = store(AVRO, columns, key=AVRO, main_registry=of_apicurio(registry, "apicurio-content-id"))

    rows, letters = shop.lands_records(records)

    assert [(row["id"], row["customer"]) for row in rows] == [(1, 7), (2, 8)]
    assert letters == [(2, "INVALID_WIRE"), (3, "INVALID_WIRE"), (4, "UNKNOWN_SCHEMA")]
    assert_clean(shop.shop)


SERIALIZER = """
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.util.*;
import org.apache.avro.Schema;
import org.apache.avro.generic.*;
import org.apache.kafka.common.header.internals.RecordHeaders;

public class Serialize {
  public static void main(String[] options) throws Exception {
    var schema = new Schema.Parser().parse(options[2]);
    for (var headers : List.of("false", "true")) {
      var serializer = new AvroKafkaSerializer<GenericRecord>();
      serializer.configure(Map.of("apicurio.registry.url", options[0], "apicurio.registry.auto-register", "true",
          "apicurio.registry.use-id", options[1], "apicurio.registry.headers.enabled", headers), false);
      var row = new GenericData.Record(schema);
      row.put("id", 7L);
      var written = new RecordHeaders();
      System.out.print("record " + HexFormat.of().formatHex(serializer.serialize("t", written, row)));
      for (var header : written)
        System.out.print(" " + header.key() + "=" + HexFormat.of().formatHex(header.value()));
      System.out.println();
      serializer.close();
    }
  }
}
"""


@pytest.mark.full
@pytest.mark.tried("Schema Registry: Apicurio, by its own serializer for Java", "real")
@pytest.mark.parametrize(
    ("framing", "kind"), [("apicurio-global-id", "globalId"), ("apicurio-content-id", "contentId")]
)
def test_values_of_the_serializer_of_apicurio_land(
    store: MakeStore, registry: RegistryServer, tmp_path: Path, framing: str, kind: str
) -> None:
    """The Java class that producers use, in both its ways; short form: the same bytes, written here."""
    java, name = shutil.which("javac"), "kafka-connect-avro"
    if java is None:
        pytest.skip("no javac on PATH: a JDK compiles the producer")
    home = Home.resolve()
    fetch(home, name)
    source = tmp_path / "Serialize.java"
    source.write_text(SERIALIZER)
    program = Path(java).with_name("java")
    command = [str(program), "-cp", f"{home.jars / name}/*", str(source)]
    url = registry.url.replace("ccompat/v7", "registry/v2")
    done = subprocess.run([*command, url, kind, ORDER], capture_output=True, text=True, check=True, env={**os.environ})
    records = []
    for line in done.stdout.splitlines():
        if line.startswith("record "):
            value, *pairs = line.split()[1:]
            headers = tuple((pair.partition("=")[0], bytes.fromhex(pair.partition("=")[2])) for pair in pairs)
            records.append(OutgoingRecord(None, bytes.fromhex(value), headers))
    shop = store(AVRO, COLUMNS, main_registry=of_apicurio(registry, framing))

    rows, letters = shop.lands_records(records)

    assert [len(record.headers) > 0 for record in records] == [False, True]
    assert (rows, letters) == ([{"id": 7}, {"id": 7}], [])
    assert_clean(shop.shop)
