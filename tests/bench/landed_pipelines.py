"""Many pipelines that landed something, one of them for a year: real topics, tables and ledgers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from frazil.batch.position import RunRequest
from frazil.iceberg.catalog.table import staging_table
from frazil.iceberg.commit.commit import Change, commit, fit_of
from frazil.iceberg.files.data_files import write_rows
from frazil.iceberg.ledger.ledger import read_ledger
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.kafka.write.produce import produce
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.runtime.home import bootstrap_servers
from tests.bench.stack import running_broker

BIG = "big"
"""The pipeline with the long ledger."""

RECENT = 100
"""Batches of it since its ledger was compacted, a file each."""

LARGE = 5
"""Files that a compaction left of the others."""

PIPELINE = """
name: {name}
owner: team-{team}
source: {{topics: [{name}]}}
engine: inline
dead_letters: {{tolerance: all}}
destinations: [{{table: shop.{name}, columns: {{id: {{type: long, required: true}}, price: double}}}}]
"""


@dataclass(frozen=True)
class Sizes:
    """How many pipelines, and what the large one has: ledger rows, and records that are dead letters."""

    pipelines: int
    ledger_rows: int
    letters: int


@contextmanager
def landed(root: Path, sizes: Sizes) -> Iterator[dict[str, str]]:
    """Land them, and keep the broker up; the variables that say where the project is."""
    names = [BIG, *(f"p{number:03}" for number in range(sizes.pipelines - 1))]
    folder, is_made = root / "pipelines", root / "made"
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names):
        (folder / f"{name}.yaml").write_text(PIPELINE.format(name=name, team=number % 7))
    with running_broker(root / "broker") as home:
        env = {
            "FRAZIL_HOME": str(root / "home"),
            "FRAZIL_PIPELINES": str(folder),
            "FRAZIL_KAFKA_PORT": str(home.ports.kafka),
        }
        if not is_made.exists():
            _make(Project.load(env), Cluster("local", {"bootstrap.servers": bootstrap_servers(home)}), names, sizes)
            is_made.touch()
        yield env


def _make(project: Project, cluster: Cluster, names: list[str], sizes: Sizes) -> None:
    project.lake("lake").tables()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: _land(project, cluster, name, sizes.letters if name == BIG else 1), names))
    _lengthen(project, sizes.ledger_rows)


def _land(project: Project, cluster: Cluster, name: str, letters: int) -> None:
    create_topic(cluster, name, 1)
    good = (b'{"id": %d, "price": 1.5}' % number for number in range(100))
    bad = (b'{"id": "no %d"}' % number if number % 4 else b'{"price": 2}' for number in range(1, letters + 1))
    for values in (good, bad):
        produce(cluster, name, (OutgoingRecord(key=None, value=value) for value in values))
        planned = plan_run(project, project.pipeline(name), RunRequest(f"run-of-{name}"))
        if planned.plan is not None:
            ingest(project, project.pipeline(name), planned.plan, stage_inline, lambda _: None)
    produce(cluster, name, [OutgoingRecord(key=None, value=b'{"id": 7}')])  # somebody waits


def _lengthen(project: Project, rows: int) -> None:
    """Write a long past into the ledger: a few large files, as a compaction leaves them, and a small one per batch since."""
    pipeline = project.pipeline(BIG)
    lake, name = project.lake_of(pipeline), pipeline.ledger_table
    pair = read_ledger(lake, name, BIG)[-2:]
    schema = lake.load_table(name).schema().as_arrow()
    step, last = (rows // 2 - RECENT) // LARGE, rows // 2
    begins = [*range(3, 3 + LARGE * step, step), *range(3 + LARGE * step, last + 1)]
    for begin, end in zip(begins, [*begins[1:], last + 1], strict=True):
        table = lake.load_table(name)
        files = write_rows(staging_table(name, table), _batches(schema, pair, range(begin, end), last))
        commit(lake, Change(name, files, {}, (), fit_of(table.metadata), lambda _: None, lambda _: None, "follow"))


def _batches(schema: pa.Schema, pair: list[dict[str, object]], numbers: range, last: int) -> pa.Table:
    """The rows of one real batch, told again for each number, five minutes apart."""
    now = datetime.now(UTC)
    one = pa.Table.from_pylist(pair, schema=schema)
    count = len(numbers)
    table = one.take(pa.array([0, 1] * count))
    twice = [number for number in numbers for _ in pair]
    instants = [now - timedelta(minutes=5 * (last - number)) for number in twice]
    columns = {
        "n": twice,
        "batch": [f"batch-{number}" for number in twice],
        "run": [f"run-{number}" for number in twice],
    }
    columns |= dict.fromkeys(("planned_at", "started_at", "decided_at", "recorded_at"), instants)
    body = json.loads(str(pair[0]["position"]))
    topic = {**body["topics"][BIG]}
    columns["position"] = [
        json.dumps(body | {"n": n, "topics": {BIG: topic | {"from": [100 * n], "next": [100 * n + 100]}}})
        for n in twice
    ]
    for column, values in columns.items():
        field = schema.field(column)
        table = table.set_column(schema.get_field_index(column), field, pa.array(values, field.type))
    return table
