"""Pipelines whose tables are tampered with: each lands the same layout of records, in its own format and its own kind of tables.

Both partitions hold, by offset: 0, 1, 4, 5 good records, 2 a bad one, 3 a filtered one (batch 1); 6, 7, 9 good, 8 bad (batch 2); 10 and
11 good (batch 3, under an edited pipeline file, where the circumstance asks for one).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Producer
from pyiceberg.expressions import And, EqualTo
from pyiceberg.table import Table

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.run.state.context import Apply
from frazil.verify.check import verify
from frazil.verify.facts.result import Verification

ORDERS: Final = "shop.orders"
LETTERS: Final = "shop.orders__dead_letters"
LEDGER: Final = "shop.orders__ledger"

Place = tuple[int, int]
"""Partition and offset."""

Row = dict[str, Any]

_PARTITIONS: Final = 2
_BAD, _FILTERED = (2, 8), (3,)
_BATCHES: Final = (range(6), range(6, 10), range(10, 12))

_HEAD: Final = "name: orders\nsource: {topics: [TOPIC]}\ndead_letters: {tolerance: all}\n"
_EDIT: Final = "limits: {max_record_bytes: 900000}\n"
"""What the edited file says more: records fare as before, but the file decides their outcomes, so it is another one."""

_COLUMNS: Final = "{id: {type: long, required: true}, name: string}"

_APPEND: Final = f"destinations: [{{table: {ORDERS}, columns: {_COLUMNS}}}]\n"
_MERGED: Final = f"""
destinations:
  - table: {ORDERS}
    write: cdc
    identifier: [id]
    columns: {_COLUMNS}
    changes: {{format: op_column, op: op, values: {{insert: [I], delete: [D]}}}}
"""
_FAN_OUT: Final = f"""
value: {{casts: text}}
destinations:
  - {{table: {ORDERS}, columns: {_COLUMNS}}}
  - {{table: shop.refunds, columns: {{id: {{type: long, required: true}}}}}}
  - {{table: shop.audit, columns: {{id: {{type: string, required: true}}, kind: string}}}}
route:
  static: {{field: kind, tables: {{{ORDERS}: order, shop.refunds: refund, shop.audit: "order|refund"}}}}
"""
_AVRO: Final = """
value:
  format: avro
  schema: '{"type":"record","name":"o","fields":[{"name":"id","type":"long"},{"name":"name","type":"string"}]}'
"""
_TRANSFORMED: Final = f"""
value: {{fields: {{number: string, title: string, more: string}}}}
transforms:
  - {{type: Filter, when: {{predicate: HasHeaderKey, name: test}}}}
  - {{type: ReplaceField, exclude: [more], renames: {{number: id, title: name}}}}
  - {{type: Cast, spec: {{id: int64}}}}
  - {{type: InsertField, static.field: origin, static.value: web}}
destinations:
  - {{table: {ORDERS}, columns: {{id: {{type: long, required: true}}, name: string, origin: string}}}}
"""


@dataclass(frozen=True)
class Circumstance:
    """A kind of pipeline.

    Attributes:
        text: Its file, without the head that all have.
        value: Bytes of a good record: of its id, its name and its offset.
        bad: Bytes of a bad one.
    """

    text: str
    value: Callable[[int, str, int], bytes]
    bad: bytes = b'{"id": "x", "kind": "order", "op": "I"}'


def _avro(number: int, name: str, _: int) -> bytes:
    return bytes([2 * number, 2 * len(name)]) + name.encode()


def _change(number: int, name: str, offset: int) -> bytes:
    """Offset 7 deletes what 5 inserted, 9 changes what 0 did."""
    row = {7: number - 2, 9: number - 9}.get(offset, number)
    return json.dumps({"id": row, "name": name, "op": "D" if offset == 7 else "I"}).encode()


CIRCUMSTANCES: Final[Mapping[str, Circumstance]] = {
    "append": Circumstance(_APPEND, lambda number, name, _: json.dumps({"id": number, "name": name}).encode()),
    "merged": Circumstance(_MERGED, _change),
    "fan_out": Circumstance(
        _FAN_OUT,
        lambda number, name, offset: json.dumps(
            {"id": number, "name": name, "kind": "refund" if offset in (5, 9) else "order"}
        ).encode(),
    ),
    "avro": Circumstance(_AVRO + _APPEND, _avro, bad=b"\xff"),
    "transformed": Circumstance(
        _TRANSFORMED,
        lambda number, name, _: json.dumps({"number": str(number), "title": name, "more": "x"}).encode(),
        bad=b'{"number": "x"}',
    ),
}


@dataclass
class EditedTable:
    """A table of a pipeline, in the hands of somebody who edits our columns."""

    load: Callable[[], Table]

    def rows(self) -> pa.Table:
        """All rows."""
        return self.load().scan().to_arrow()

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        table = self.load()
        table.append(pa.Table.from_pylist(list(rows), table.schema().as_arrow()))

    def overwrite(self, change: Callable[[Row], Row | None]) -> None:
        """Replace all rows by what `change` makes of each; None takes one out."""
        table, changed = self.load(), [change(row) for row in self.rows().to_pylist()]
        table.overwrite(pa.Table.from_pylist([row for row in changed if row], table.schema().as_arrow()))

    def delete(self, **where: Any) -> None:
        """Delete rows whose columns are equal to these values."""
        filters = [EqualTo(name, value) for name, value in where.items()]  # type: ignore[call-arg, arg-type]  # pydantic's
        self.load().delete(filters[0] if len(filters) == 1 else And(*filters))

    def expire(self) -> None:
        """Take all snapshots but the present one out of the metadata."""
        table = self.load()
        older = [
            snapshot.snapshot_id
            for snapshot in table.metadata.snapshots
            if snapshot.snapshot_id != table.metadata.current_snapshot_id
        ]
        table.maintenance.expire_snapshots().by_ids(older).commit()

    def roll_back(self, n: int) -> None:
        """Make the snapshot of a batch the current one again."""
        table = self.load()
        named = [
            snapshot
            for snapshot in table.metadata.snapshots
            if snapshot.summary and _number(snapshot.summary.additional_properties) == n
        ]
        table.manage_snapshots().rollback_to_snapshot(named[-1].snapshot_id).commit()


def _number(summary: Mapping[str, str]) -> int | None:
    marks = [summary.get(f"frazil.{mark}.orders") for mark in ("batch", "done")]
    return next((json.loads(mark)["n"] for mark in marks if mark is not None), None)


@dataclass
class Landed:
    """A pipeline that landed its batches, and what stands in the way of nobody who edits its tables.

    Attributes:
        root: Folder of the pipeline file, and of the home with catalog and warehouse.
        circumstance: Which records there are, and what becomes of them.
    """

    root: Path
    cluster: Cluster
    circumstance: Circumstance
    topic: str = field(default_factory=lambda: f"orders-{uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self._folder.mkdir()

    @property
    def _folder(self) -> Path:
        return self.root / "pipelines"

    @property
    def project(self) -> Project:
        """The project, read anew: the files of its home may be others by now."""
        port = self.cluster.bootstrap_servers.rpartition(":")[2]
        env = {"FRAZIL_HOME": str(self.root / "home"), "FRAZIL_PIPELINES": str(self._folder)}
        return Project.load(env | {"FRAZIL_KAFKA_PORT": port})

    def table(self, name: str) -> EditedTable:
        """A table to be edited."""
        return EditedTable(lambda: self.project.lake("lake").load_table(name))

    @property
    def rows(self) -> EditedTable:
        """The first destination."""
        return self.table(ORDERS)

    @property
    def letters(self) -> EditedTable:
        """The dead letters."""
        return self.table(LETTERS)

    @property
    def ledger(self) -> EditedTable:
        """The ledger."""
        return self.table(LEDGER)

    @property
    def closing(self) -> EditedTable:
        """The table whose commits move the position."""
        return self.rows if "kafka.offsets.orders" in self.rows.load().properties else self.ledger

    def verified(self) -> Verification:
        """What verify finds."""
        project = self.project
        return verify(project, project.pipeline("orders"))

    @property
    def has_several(self) -> bool:
        """Whether there are several destinations."""
        return len(self.project.pipeline("orders").destinations) > 1

    def record(self, place: Place) -> bytes | None:
        """The value of a record."""
        return next(_records(self.circumstance, place[0], range(place[1], place[1] + 1)))[0]

    def land(self, *, is_edited: bool, apply: Apply | None = None) -> None:
        """Land the batches, and keep a copy of all files for `restore`."""
        create_topic(self.cluster, self.topic, _PARTITIONS)
        for n, offsets in enumerate(_BATCHES if is_edited else _BATCHES[:2], 1):
            head = _HEAD.replace("TOPIC", self.topic) + (_EDIT if n == len(_BATCHES) else "")
            (self._folder / "orders.yaml").write_text(head + self.circumstance.text)
            self._send(offsets)
            project = self.project
            plan = plan_run(project, project.pipeline("orders"), RunRequest(str(uuid4()))).plan
            assert plan is not None
            ingest(project, project.pipeline("orders"), plan, stage_inline, lambda _: None, apply=apply)
        shutil.copytree(self.root / "home", self.root / "kept")

    def restore(self) -> None:
        """Undo what was done to tables and files since the batches landed."""
        shutil.rmtree(self.root / "home")
        shutil.copytree(self.root / "kept", self.root / "home")

    def _send(self, offsets: range) -> None:
        producer = Producer(dict(self.cluster.properties))
        for partition in range(_PARTITIONS):
            for value, headers in _records(self.circumstance, partition, offsets):
                producer.produce(self.topic, value, partition=partition, headers=headers)
        assert producer.flush(10) == 0


def _records(
    circumstance: Circumstance, partition: int, offsets: range
) -> Iterator[tuple[bytes | None, list[tuple[str, str | bytes | None]]]]:
    for offset in offsets:
        number = 32 * partition + offset
        good = circumstance.value(number, f"name {number}", offset)
        if offset in _FILTERED:
            yield (good, [("test", b"")]) if "Filter" in circumstance.text else (None, [])
        else:
            yield (circumstance.bad if offset in _BAD else good), []
