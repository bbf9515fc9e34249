"""The tables of results files, as Markdown: every figure of the report comes from here.

    python -m tests.bench.side_by_side.tables FILE… [--into docs/benchmarks.md]

With `--into`, they take the place of what stands between the marks of that page.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

SINK: Final = "Kafka Connect"
BEGIN: Final = "<!-- begin of the tables of tests.bench.side_by_side -->"
END: Final = "<!-- end of the tables of tests.bench.side_by_side -->"


def tables(results: dict[str, Any]) -> list[str]:
    """Lines of all tables of a run."""
    return [line for each in (_drains, _trickles, _idle, _small, _failed, _ground) for line in each(results)]


def _ground(results: dict[str, Any]) -> Iterator[str]:
    """Where, when, with which versions."""
    machine = results["machine"]
    yield f"Measured {results['began'][:10]} by `{results['command']}` on {machine['cores']} cores of {machine['cpu']}, {machine['memory_bytes'] / 2**30:.0f} GiB;"
    yield ", ".join(f"{name} {version}" for name, version in results["versions"].items()) + "."
    yield ""


def _parts(results: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [of for of in results["parts"] if of["part"] == part and "failed" not in of]


def _failed(results: dict[str, Any]) -> Iterator[str]:
    """Parts that ended early: the file has their rounds until then, the tables have none."""
    for part in results["parts"]:
        if "failed" in part:
            what = " ".join(filter(None, [part["part"], part.get("workload")]))
            yield f"**Not measured to its end**: {what}: {part['failed'].splitlines()[-1]}"
            yield ""


def _drains(results: dict[str, Any]) -> Iterator[str]:
    for part in _parts(results, "drain"):
        count = len(next(iter(part["sides"].values())))
        yield f"**{part['said']}**: {part['records']:,} records of {part['bytes'] / part['records']:.0f} bytes, {part['partitions']} partitions; {_rounds(count)}."
        yield ""
        yield "| side | records/s | until 99 % | MB/s per core | CPU s per million | without the broker | peak memory MB | commits | files | MB written | seconds |"
        yield "|---|---|---|---|---|---|---|---|---|---|---|"
        yield from (_drain(part, name, rounds) for name, rounds in part["sides"].items())
        yield ""
        yield from _ratios(part)
        yield ""


def _drain(part: dict[str, Any], name: str, rounds: list[dict[str, Any]]) -> str:
    seconds, last, million = _median(rounds, "seconds"), rounds[-1]["held"], part["records"] / 1e6
    cpu, broker = _median(rounds, "cpu_seconds"), _median(rounds, "broker_cpu_seconds")
    figures = [
        name,
        f"{part['records'] / seconds:,.0f}",
        f"{part['records'] * 0.99 / _median(rounds, 'seconds_99'):,.0f}",
        f"{part['bytes'] / seconds / part['cores'] / 1e6:.1f}",
        f"{cpu / million:.1f}",
        f"{(cpu - broker) / million:.1f}",
        f"{max(each['peak_bytes'] for each in rounds) / 1e6:,.0f}",
        f"{len(rounds[-1]['commits'])}",
        f"{last['files']}",
        f"{last['bytes'] / 1e6:,.0f}",
        ", ".join(f"{each['seconds']:.1f}" for each in rounds),
    ]
    return _row(figures)


def _ratios(part: dict[str, Any]) -> Iterator[str]:
    """Each side of Frazil's against the sink: more is better of the first figures, less of the last."""
    sink = part["sides"][SINK]
    busy = [rate for each in sink if (rate := _busy_rate(each["commits"])) is not None]
    for name, rounds in part["sides"].items():
        if name.startswith("Frazil"):
            rate = part["records"] / _median(rounds, "seconds")
            cpu = _median(rounds, "cpu_seconds") / _median(sink, "cpu_seconds")
            line = (
                f"{part['workload']}, {name}: throughput ratio: {rate * _median(sink, 'seconds') / part['records']:.2f}"
            )
            if busy:
                line += f" (to Kafka Connect's rate between commits, {statistics.median(busy):,.0f} records/s: {rate / statistics.median(busy):.2f})"
            else:
                line += " (Kafka Connect made fewer than three commits: no rate between them, and its time holds the wait for one)"
            yield f"{line}; CPU ratio: {cpu:.2f}"


def _busy_rate(commits: list[list[float]]) -> float | None:
    """Records a second between the first commit and the last but one: without the start, and the wait for the last commit."""
    if len(commits) < 3:
        return None
    (began, before), (ended, rows) = commits[0], commits[-2]
    return (rows - before) / (ended - began)


def _trickles(results: dict[str, Any]) -> Iterator[str]:
    parts = _parts(results, "trickle")
    if not parts:
        return
    yield f"**Trickle**: {parts[0]['rate']:,} records/s for {parts[0]['minutes']:g} minutes. Freshness: commit less record time, in seconds."
    yield ""
    yield "| interval s | side | p50 | p95 | p99 | max | CPU s per hour | with the broker | commits | files |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for part in parts:
        for name, side in part["sides"].items():
            fresh = [f"{side['freshness'][key]:.1f}" for key in ("p50", "p95", "p99", "max")]
            yield _row(
                [
                    f"{part['interval_seconds']:g}",
                    name,
                    *fresh,
                    *_hourly(side),
                    f"{side['commits']}",
                    f"{side['files']}",
                ]
            )
    yield ""


def _idle(results: dict[str, Any]) -> Iterator[str]:
    parts = _parts(results, "idle")
    if not parts:
        return
    yield f"**Idle**: {parts[0]['minutes']:g} minutes without a record, told for an hour."
    yield ""
    yield "| interval s | side | CPU s per hour | with the broker |"
    yield "|---|---|---|---|"
    for part in parts:
        yield from (
            _row([f"{part['interval_seconds']:g}", name, *_hourly(side)]) for name, side in part["sides"].items()
        )
    yield ""


def _hourly(side: dict[str, Any]) -> list[str]:
    hours = side["seconds"] / 3_600
    own, broker = side["process_cpu_seconds"], side["broker_cpu_seconds"]
    return [f"{own / hours:,.0f}", f"{(own + broker) / hours:,.0f}"]


def _small(results: dict[str, Any]) -> Iterator[str]:
    for part in _parts(results, "small"):
        phases = list(dict.fromkeys(name for each in part["ways"].values() for one in each for name in one["phases"]))
        count = len(next(iter(part["ways"].values())))
        yield f"**Small batch**: {part['records']:,} records; {_rounds(count)}. Phases in seconds, as the ledger has them."
        yield ""
        yield _row(["way", "seconds until visible", "CPU s", "start and plan", *phases])
        yield "|" + "---|" * (len(phases) + 4)
        for name, rounds in part["ways"].items():
            medians = [f"{statistics.median(one['phases'].get(phase, 0.0) for one in rounds):.2f}" for phase in phases]
            before = statistics.median(map(_before_staging, rounds))
            figures = [_median(rounds, "seconds"), _median(rounds, "cpu_seconds"), before]
            yield _row([name, *(f"{figure:.2f}" for figure in figures), *medians])
        yield ""


def _before_staging(one: dict[str, Any]) -> float:
    """Seconds that no phase has: an interpreter, a JVM, the plan. What is forwarded comes after the rows are visible."""
    seconds: float = one["seconds"]
    return seconds - sum(phase_seconds for phase, phase_seconds in one["phases"].items() if phase != "forward")


def _median(rounds: list[dict[str, Any]], key: str) -> float:
    return statistics.median(run[key] for run in rounds)


def _rounds(count: int) -> str:
    return "one round" if count == 1 else f"medians of {count} rounds"


def _row(figures: list[str]) -> str:
    return f"| {' | '.join(figures)} |"


def main() -> int:
    """Print the tables of a file, or put them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="+", help="one after the other, each with its ground")
    parser.add_argument("--into", type=Path)
    args = parser.parse_args()
    text = "\n".join(line for file in args.file for line in tables(json.loads(file.read_text(encoding="utf-8"))))
    if args.into is None:
        print(text)  # noqa: T201
        return 0
    page = args.into.read_text(encoding="utf-8")
    assert page.count(BEGIN) == page.count(END) == 1, f"{args.into} has no such marks"
    replacement: Callable[[re.Match[str]], str] = lambda _: f"{BEGIN}\n\n{text}\n{END}"  # noqa: E731
    args.into.write_text(re.sub(f"{BEGIN}.*?{END}", replacement, page, flags=re.DOTALL), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
