"""Tables that the first Frazil wrote (commit da6fd3b), moved to where a test has its home, cluster and topic.

`tests/fixtures/first-frazil.tar.xz` is the home of that commit's code after three batches of two good and two bad records
each, and a replay of all of them. It was made once: files name their places, and records their cluster and topic.
"""

from __future__ import annotations

import io
import sqlite3
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from frazil.kafka.client.cluster import OutgoingRecord
from tests.operations import order

HOME, CLUSTER, TOPIC_ID = "/first-frazil/home", "p2CmJOFTTDCD6pcAoOlW_A", "PXK5uriuTLa9qflr9-rDow"
"""What the fixture was made with."""

TOPIC = "orders-of-an-older-frazil"
ARCHIVE = Path(__file__).parents[2] / "fixtures" / "first-frazil.tar.xz"

Change = Callable[[str], str]


def extract(home: Path, cluster_id: str, topic_id: str) -> None:
    """Make a home of the first Frazil's tables, as if it had landed records of this cluster and topic."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(home, filter="data")
    relocate(home, {HOME: str(home), CLUSTER: cluster_id, TOPIC_ID: topic_id})


def records() -> Iterator[OutgoingRecord]:
    """The records that it landed, in their order."""
    for n in range(12):
        value = b"bad" if n % 2 else order(n)
        yield OutgoingRecord(None, value, timestamp_ms=1_780_000_000_000 + n)


def relocate(home: Path, words: Mapping[str, str]) -> None:
    """Replace words in all files below a home: metadata, manifests, the ledger's rows and the catalog."""

    def change(text: str) -> str:
        for old, new in words.items():
            text = text.replace(old, new)
        return text

    sizes: dict[str, int] = {}
    for path in home.rglob("*.json"):
        path.write_text(change(path.read_text()))
    for path in home.rglob("*__ledger/data/*.parquet"):
        _change_rows(path, change)
        sizes[f"file://{path}"] = path.stat().st_size
    lists = sorted(home.rglob("snap-*.avro"))
    for path in (*(one for one in home.rglob("*-m*.avro") if one not in lists), *lists):
        _change_avro(path, change, sizes)
        sizes[f"file://{path}"] = path.stat().st_size
    with sqlite3.connect(home / "catalog.db") as catalog:
        locations = catalog.execute(
            "SELECT table_name, metadata_location, previous_metadata_location FROM iceberg_tables"
        )
        for name, *places in locations.fetchall():
            catalog.execute(
                "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? WHERE table_name = ?",
                (*map(change, places), name),
            )
    catalog.close()


def _change_rows(path: Path, change: Change) -> None:
    rows = pq.read_table(path)
    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            changed = [None if text is None else change(text) for text in rows.column(place).to_pylist()]
            rows = rows.set_column(place, field, pa.array(changed, field.type))
    pq.write_table(rows, path, compression="zstd")


def _change_avro(path: Path, change: Change, sizes: Mapping[str, int]) -> None:
    """A list of files, or of such lists: with the files' new places and lengths."""
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        entries: list[Any] = list(reader)
    for entry in entries:
        named, key, size = (
            (entry, "manifest_path", "manifest_length")
            if "manifest_path" in entry
            else (entry["data_file"], "file_path", "file_size_in_bytes")
        )
        named[key] = change(named[key])
        named[size] = sizes.get(named[key], named[size])
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    written = io.BytesIO()
    fastavro.writer(written, reader.writer_schema, entries, codec="deflate", metadata=metadata)
    path.write_bytes(written.getvalue())
