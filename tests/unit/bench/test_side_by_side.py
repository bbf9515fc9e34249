"""The benchmark beside Kafka Connect: wrong results are found, and figures are those of the rounds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from tests.bench.side_by_side import __main__ as bench
from tests.bench.side_by_side import tables as report
from tests.bench.side_by_side.contents import ROW, contents, landed, visible_at, visible_rows
from tests.bench.side_by_side.drain import differences
from tests.bench.side_by_side.sides import Drained
from tests.bench.side_by_side.sink_side import tasks

INSTANT = datetime(2026, 3, 1, tzinfo=UTC)


def table_of(folder: Path, name: str, *appends: list[tuple[int, int]]) -> Table:
    """A table with columns `a`, `b` and `at`, and a commit per list of rows."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/{name}.db", warehouse=f"file://{folder}/{name}")
    catalog.create_namespace("bench")
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    table = catalog.create_table(f"bench.{name}", schema)
    for rows in appends:
        table.append(pa.Table.from_pylist([{"a": a, "b": b, "at": INSTANT} for a, b in rows], schema=schema))
    return table


def drained(table: Table, seconds: float = 1.0, cpu_seconds: float = 1.0) -> Drained:
    table_contents = contents(table, ["a", "b"])
    commits = [(share * seconds / 4, share * 500_000) for share in (1, 2, 3, 4)]
    return Drained(seconds, seconds / 2, seconds, cpu_seconds, 0.25, 2_000_000, commits, table_contents)


def test_rows_in_another_order_and_in_other_files_are_the_same(tmp_path: Path) -> None:
    """Two sides never write the same files: that must not look like a difference."""
    one = drained(table_of(tmp_path, "one", [(1, 2), (3, 4)]))
    second = drained(table_of(tmp_path, "other", [(3, 4)], [(1, 2)]))

    assert differences({"one": [one], "other": [second]}, 2) == []


def test_values_that_changed_rows_are_noticed(tmp_path: Path) -> None:
    """Each column for itself holds the same: only whole rows tell."""
    one = drained(table_of(tmp_path, "one", [(1, 2), (3, 4)]))
    second = drained(table_of(tmp_path, "other", [(1, 4), (3, 2)]))

    (problem,) = differences({"one": [one], "other": [second]}, 2)

    assert problem.startswith(f"other, round 1: {ROW}: ")


def test_duplicate_row_is_noticed(tmp_path: Path) -> None:
    """A sink that lands a record again is fast and wrong."""
    one = drained(table_of(tmp_path, "one", [(1, 2)]))
    second = drained(table_of(tmp_path, "other", [(1, 2), (1, 2)]))

    problems = differences({"one": [one], "other": [second]}, 1)

    assert problems[0] == "other, round 1: 2 rows of 1 records"
    assert len(problems) == 4


def test_rows_are_visible_from_their_own_commit_on(tmp_path: Path) -> None:
    """Freshness is of the commit that brought a row, not of the last one."""
    table = table_of(tmp_path, "one", [(1, 2)], [(3, 4), (5, 6)])

    commits = list(landed(table, "at"))
    past = visible_rows(table)

    assert [len(instants) for _, instants in commits] == [1, 2]
    assert [instant for instant, _ in commits] == [commit.at for commit in past]
    assert (visible_at(past, 1), visible_at(past, 3)) == (past[0].at, past[1].at)
    assert {one for _, instants in commits for one in instants} == {INSTANT.timestamp()}


def results(tmp_path: Path) -> dict[str, Any]:
    table = table_of(tmp_path, "one", [(1, 2)])
    sides = {
        "Frazil, submit": [drained(table, 10, 5), drained(table, 30, 9), drained(table, 20, 6)],
        report.SINK: [drained(table, 40, 12)] * 3,
    }
    drain = {
        "part": "drain",
        "workload": "orders",
        "said": "orders",
        "partitions": 4,
        "records": 2_000_000,
        "bytes": 400_000_000,
        "cores": 2,
        "sides": {name: [asdict(result) for result in rounds] for name, rounds in sides.items()},
        "wrong": [],
    }
    machine = {"cpu": "a processor", "cores": 2, "memory_bytes": 2**34, "load": 0.1}
    return {
        "began": "2026-11-22T10:00:00",
        "command": "c",
        "machine": machine,
        "versions": {"Spark": "4"},
        "parts": [drain],
    }


def test_tables_show_medians_and_ratios(tmp_path: Path) -> None:
    """A figure in the report is of the median round, and a ratio says who is ahead in the right direction."""
    lines = report.tables(results(tmp_path))

    row = next(line for line in lines if line.startswith("| Frazil"))
    assert row.split(" | ")[1:6] == ["100,000", "198,000", "10.0", "3.0", "2.9"]
    ratio_text = "(to Kafka Connect's rate between commits, 50,000 records/s: 2.00); CPU ratio: 0.50"
    assert f"orders, Frazil, submit: throughput ratio: 2.00 {ratio_text}" in lines


def test_ratio_that_includes_a_wait_for_a_commit_says_so(tmp_path: Path) -> None:
    """Of fewer than three commits there is no rate between them: the line says it."""
    bench_results = results(tmp_path)
    (drain,) = bench_results["parts"]
    for each in drain["sides"][report.SINK]:
        del each["commits"][2:]

    (ratio_line,) = [line for line in report.tables(bench_results) if "throughput ratio" in line]

    assert "orders, Frazil, submit: throughput ratio: 2.00 (Kafka Connect made fewer than three commits" in ratio_line


@pytest.mark.parametrize(("wrong", "expected"), [([], 2), (["one row of two"], 1)])
def test_failing_part_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: list[str], expected: int
) -> None:
    """Its rounds are in the file, other parts go on, the exit code tells it from wrong results, and tables can be printed."""

    def fail(_: Path, __: object, results: dict[str, Any], report: Callable[[str], None]) -> None:
        results["ways"] = ["a round"]
        report("measured")
        raise AssertionError("the sink did not start")

    def work(_: Path, __: object, results: dict[str, Any], report: Callable[[str], None]) -> None:
        results["wrong"] = wrong
        report("measured")

    monkeypatch.setattr(bench, "RUNS", {"small": fail, "other": work})
    run = results(tmp_path)

    bench.measured([("small", None), ("other", None)], run, tmp_path / "run.json")

    document = json.loads((tmp_path / "run.json").read_text())
    assert document["parts"][1]["ways"] == ["a round"]
    assert document["parts"][2] == {"part": "other", "wrong": wrong}
    assert bench.verdict(document["parts"]) == expected
    assert "**Not measured to its end**: small: AssertionError: the sink did not start" in report.tables(document)


def test_page_gets_its_tables_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands around the tables is written by hand, and stays."""
    (tmp_path / "run.json").write_text(json.dumps(results(tmp_path)))
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nbehind\n")
    monkeypatch.setattr(sys, "argv", ["tables", str(tmp_path / "run.json"), "--into", str(page)])

    assert report.main() == 0

    text = page.read_text()
    assert "old" not in text
    assert text.startswith(f"before\n{report.BEGIN}\n\n**orders**")
    assert text.endswith(f"{report.END}\nbehind\n")


@pytest.mark.parametrize(("partitions", "cores", "expected"), [(4, 2, 2), (5, 2, 5), (4, 8, 4), (1, 2, 1)])
def test_every_core_of_kafka_connect_gets_a_partition(partitions: int, cores: int, expected: int) -> None:
    """Five partitions on two tasks are three and two: the last fifth would run on one core, which is nobody's tuning."""
    assert tasks(partitions, cores) == expected
