"""A real Airflow on PostgreSQL with hundreds of pipelines that are due every minute and have nothing to read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine, create_engine, text

from frazil.devstack import stack
from frazil.runtime.home import Home, is_free
from frazil.runtime.process import Processes, until
from tests.bench.many.files import names, topics_of, write
from tests.bench.many.plans import make_topics
from tests.postgres_server import postgres_server

PARSED_SECONDS = 600.0
"""Bounds the wait until all DAGs are in Airflow's database."""

COMPONENTS = ("airflow-scheduler", "airflow-dag-processor", "airflow-api-server", "airflow-triggerer")

_UNPAUSE = "UPDATE dag SET is_paused = false WHERE dag_id LIKE 'ingest\\_\\_%'"

_ENDED = """
SELECT count(*), coalesce(avg(extract(epoch FROM ti.start_date - r.run_after)), 0),
       coalesce(max(extract(epoch FROM ti.start_date - r.run_after)), 0),
       coalesce(avg(ti.duration), 0), count(DISTINCT ti.dag_id), count(*) FILTER (WHERE ti.state <> 'success')
FROM task_instance ti JOIN dag_run r ON r.dag_id = ti.dag_id AND r.run_id = ti.run_id
WHERE ti.task_id = 'plan' AND ti.end_date >= to_timestamp(:since)
"""


@dataclass(frozen=True)
class Spent:
    """CPU seconds of each component so far, and of the tasks of the scheduler's workers."""

    of: Mapping[str, float]

    def since(self, before: Spent) -> dict[str, float]:
        """What was spent in between."""
        return {name: seconds - before.of[name] for name, seconds in self.of.items()}


def report(folder: Path, count: int, each: int, minutes: float) -> Iterator[str]:
    """A line per measurement."""
    ports = [port for port in range(22_000, 23_000) if is_free(port)][:4]
    with postgres_server(ports[0]) as postgres:
        env = {
            **write(folder, count, each),
            "FRAZIL_JARS": str(Home.resolve().jars),
            "FRAZIL_KAFKA_PORT": str(ports[1]),
            "FRAZIL_KAFKA_CONTROLLER_PORT": str(ports[2]),
            "FRAZIL_AIRFLOW_PORT": str(ports[3]),
            "FRAZIL_AIRFLOW_DATABASE": postgres.make("airflow"),
        }
        os.environ |= env
        home = Home.resolve(env)
        began = time.monotonic()
        stack.up(home, report=lambda _: None)
        try:
            make_topics(home, [topic for name in names(count) for topic in topics_of(name, each)])
            yield from _measured(create_engine(env["FRAZIL_AIRFLOW_DATABASE"]), home, count, minutes, began)
        finally:
            stack.down(home)


def _measured(engine: Engine, home: Home, count: int, minutes: float, began: float) -> Iterator[str]:
    processes = Processes(home.run, home.logs, home.root)
    is_parsed = until(
        lambda: _number(engine, "SELECT count(*) FROM dag WHERE dag_id LIKE 'ingest%'") >= count, PARSED_SECONDS
    )
    if not is_parsed:
        raise TimeoutError("Airflow does not know all DAGs")
    parsing = spent(processes).of["airflow-dag-processor"]
    yield f"all DAGs are known {time.monotonic() - began:.0f} s after the start, {parsing:.0f} CPU s of the DAG processor"
    with engine.begin() as connection:
        connection.execute(text(_UNPAUSE))
    for number in range(2):  # first plans make tables, later ones have nothing to do
        before, since = spent(processes), time.time()
        time.sleep(60 * minutes)
        yield from _lines("first" if number == 0 else "later", engine, since, spent(processes).since(before))


def _lines(which: str, engine: Engine, since: float, used: Mapping[str, float]) -> Iterator[str]:
    minutes = (time.time() - since) / 60
    with engine.connect() as connection:
        ended, mean, longest, duration, dags, failed = connection.execute(text(_ENDED), {"since": since}).one()
    yield (
        f"{which} {minutes:.1f} min: {ended / minutes:.0f} plans a minute of {dags} pipelines ({failed} did not succeed), each"
        f" {duration:.1f} s, started {mean:.0f} s after it was due, at most {longest:.0f} s"
    )
    total = sum(used.values())
    shares = ", ".join(f"{name} {seconds:.0f}" for name, seconds in used.items())
    yield f"  CPU s: {shares}; {total / max(ended, 1):.2f} a plan, {total / minutes / 60:.2f} cores"


def _number(engine: Engine, query: str) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text(query)).scalar_one())


def spent(processes: Processes) -> Spent:
    """CPU seconds, those of children that ended included. PostgreSQL and Kafka are not among them."""
    children = _children()
    used = {}
    for name in COMPONENTS:
        record = processes.running(name)
        used[name] = 0.0 if record is None else _seconds(record.pid, children)
    return Spent(used)


def _seconds(pid: int, children: Mapping[int, list[int]]) -> float:
    try:
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it ended, and is among its parent's children
    own = sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
    return own + sum(_seconds(child, children) for child in children.get(pid, []))


def _children() -> dict[int, list[int]]:
    pids: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        pids.setdefault(parent, []).append(int(path.parent.name))
    return pids
