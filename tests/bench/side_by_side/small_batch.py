"""A small batch: from its plan until it is visible, by every way of landing it that Frazil has, and where the time goes.

`inline` in a warm process is the batch alone: the plan, the records, the commits. The other ways are commands, from their start:
an interpreter starts, and for `submit` a JVM, with the archive of Spark's classes (AppCDS) or without. The server of `connect` is
there before the first batch, which is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from frazil.batch.position import RunRequest
from frazil.project import Project
from frazil.report.history import history
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from tests.bench.side_by_side import frazil_side, meter
from tests.bench.side_by_side.bench import Bench, bench, server_ended
from tests.bench.side_by_side.contents import contents, rows_of, unequal, visible_at, visible_rows
from tests.bench.side_by_side.topics import append, fill
from tests.bench.side_by_side.workloads import WORKLOADS

_BARE: Final = "Frazil, submit, without AppCDS"


@dataclass(frozen=True)
class SmallOrder:
    """What is to be measured.

    Attributes:
        records: Of a batch.
        rounds: Batches, after one to warm up.
        engines: Of the settings, beside `inline` and `submit`.
    """

    records: int
    rounds: int
    engines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Way:
    """One way of landing a batch: a pipeline of its own on the common topic.

    Attributes:
        env: Names its project.
        of: The project.
        engine: That lands.
        land: Lands what waits.
    """

    env: dict[str, str]
    of: Project
    engine: str
    land: Callable[[str], object]


def small_batches(root: Path, order: SmallOrder, results: dict[str, Any], report: Callable[[str], None]) -> None:
    """Land batch after batch by all ways in turn.

    Args:
        root: Folder of the bench.
        order: What is to be measured.
        results: Gets what goes into the results file, each batch as it comes; `wrong` is empty if every table has all records, and
            all the same.
        report: Told of each batch.
    """
    with bench(root, WORKLOADS["orders"]) as ground, ExitStack() as servers:
        name, records = ground.workload.name, ground.workload.records()
        fill(ground.cluster, name, ground.workload.partitions, records, order.records)
        all_ways = ways(ground, order)
        for way in all_ways.values():
            servers.enter_context(server_ended(way.env))
            frazil_side.start_server(way.engine, way.env)
        rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in all_ways}
        results |= {"records": order.records, "ways": rounds, "wrong": []}
        for number in range(order.rounds + 1):
            if number:
                append(ground.cluster, name, ground.workload.partitions, records, order.records)
            for title, way in all_ways.items():
                took = landed(ground, way, f"round-{number}", (number + 1) * order.records)
                rounds[title] += [took] if number else []
                report(f"small batch, round {number}: {title} {took['seconds']:.2f} s")
        contents_by_way = {
            title: contents(_table(way.of), list(ground.workload.columns)) for title, way in all_ways.items()
        }
    results["wrong"] = [f"small batch, {line}" for line in unequal(contents_by_way, (order.rounds + 1) * order.records)]


def ways(ground: Bench, order: SmallOrder) -> dict[str, Way]:
    """All ways, by what they are called in the report."""
    ways: dict[str, Way] = {}
    env = ground.environment("warm", engine="inline")
    warm = Project.load(env)
    ways["Frazil, inline, warm process"] = Way(env, warm, "inline", lambda run: _in_process(warm, run))
    engines = {f"Frazil, {engine}": engine for engine in dict.fromkeys(("inline", "submit", *order.engines))}
    for title, engine in (engines | {_BARE: "submit"}).items():
        named = ground.environment(title.replace(", ", "-").replace(" ", "-"), engine=engine)
        if title == _BARE:
            named["FRAZIL_JARS"] = str(_without_archive(ground))
        ways[title] = Way(named, Project.load(named), engine, _command(engine, os.environ | named))
    return ways


def landed(ground: Bench, way: Way, run: str, expected: int) -> dict[str, Any]:
    """Land what waits; what it took."""
    with meter.measured(ground.broker_pid) as reading:
        way.land(run)
    table = _table(way.of)
    instant = visible_at(visible_rows(table), min(expected, rows_of(table)))
    phases: Mapping[str, float] = history(way.of, way.of.pipeline(WORKLOADS["orders"].name))[-1].phases
    return {"seconds": instant - reading.began, "cpu_seconds": reading.cpu_seconds, "phases": dict(phases)}


def _table(project: Project) -> Any:
    workload = WORKLOADS["orders"]
    return project.lake_of(project.pipeline(workload.name)).load_table(workload.table)


def _in_process(project: Project, run: str) -> None:
    pipeline = project.pipeline(WORKLOADS["orders"].name)
    planned = plan_run(project, pipeline, RunRequest(run))
    assert planned.plan is not None
    ingest(project, pipeline, planned.plan, stage_inline, lambda _: None)


def _command(engine: str, env: dict[str, str]) -> Callable[[str], object]:
    return lambda _: frazil_side.run(WORKLOADS["orders"].name, engine, env)


def _without_archive(ground: Bench) -> Path:
    """The jars, but not the archive."""
    folder = ground.root / "bare-jars"
    folder.mkdir()
    for jar in ground.broker.jars.iterdir():
        if jar.is_dir():
            (folder / jar.name).symlink_to(jar)
    return folder
