"""What dead letters cost: CPU time of decoding batches of which none, one in 1,000 or one in 10 records is bad.

    python -m tests.bench.decode [--format NAME] [--rounds 15]

Prints per format and kind of fault the records per second of CPU time, CPU seconds per million records without dead letters
and with one in 1,000, and the ratios of both rates to none. Batches have 10,000 records of ten columns (texts and numbers:
of one). CPU time of all threads counts, the median of the rounds; rates take turns, in both directions, so that other work
on the machine hits all of them alike.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator
from statistics import median

import pyarrow as pa

from tests.fuzz.subjects import SUBJECTS, Subject
from tests.unit.records.kafka_batches import BATCH_NUMBER, OneTable, kafka_batch

RECORDS = 10_000
RATES = (0, 1_000, 10)
"""One bad record in so many; 0: none."""

LIMIT = 1.15
"""Of the time without dead letters, at one in 1,000."""


def batches(subject: Subject, fault: str) -> list[pa.RecordBatch]:
    """The same records at each rate of dead letters."""
    values = [subject.good(n) for n in range(RECORDS)]
    bad = subject.faults[fault]
    return [
        kafka_batch([bad(value) if every and n % every == every // 2 else value for n, value in enumerate(values)])
        for every in RATES
    ]


def cpu_seconds(decoder: OneTable, records: pa.RecordBatch, dead: int) -> float:
    """CPU time of all threads for one batch, which must have so many dead letters."""
    began = time.process_time()
    outcomes = decoder.decode(records)
    took = time.process_time() - began
    if len(outcomes.dead) != dead:
        sys.exit(f"expected {dead} dead letters, found {len(outcomes.dead)}")
    return took


def measured(subject: Subject, fault: str, rounds: int) -> list[float]:
    """CPU seconds per million records at each rate: the median of the rounds, after one to warm up."""
    decoder = OneTable(subject.spec, BATCH_NUMBER)
    batches_by_rate = [
        (records, RECORDS // every if every else 0)
        for every, records in zip(RATES, batches(subject, fault), strict=True)
    ]
    gc.collect()
    gc.disable()
    seconds = [
        cpu_seconds_of_round(decoder, batches_by_rate, backwards=number % 2 == 1) for number in range(rounds + 1)
    ]
    gc.enable()
    return [median(rates) * 1_000_000 / RECORDS for rates in zip(*seconds[1:], strict=True)]


def cpu_seconds_of_round(
    decoder: OneTable, batches_by_rate: list[tuple[pa.RecordBatch, int]], *, backwards: bool
) -> list[float]:
    """CPU time at each rate, in the order of the rates, whichever is measured first."""
    order = range(len(batches_by_rate))
    took = {index: cpu_seconds(decoder, *batches_by_rate[index]) for index in (reversed(order) if backwards else order)}
    return [took[index] for index in order]


def rows(chosen: list[Subject], rounds: int) -> Iterator[tuple[str, str, list[float]]]:
    """Measure one kind of fault after the other."""
    for subject in chosen:
        for fault in subject.faults:
            yield subject.name, fault, measured(subject, fault, rounds)


def _print(*figures: str) -> None:
    print("| " + " | ".join(figures) + " |", flush=True)  # noqa: T201


def main() -> int:
    """Measure, print, and return 1 if one in 1,000 costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--format", choices=[subject.name for subject in SUBJECTS])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    chosen = [subject for subject in SUBJECTS if args.format in {None, subject.name}]
    _print("format", "dead letters are", "records/s", "s per million", "at 0.1 %", "ratio", "at 10 %")
    over = 0
    for name, fault, (none, few, many) in rows(chosen, args.rounds):
        over += few / none > LIMIT
        seconds, ratios = (f"{none:.2f}", f"{few:.2f}"), (f"{few / none:.2f}", f"{many / none:.2f}")
        _print(name, fault, f"{1_000_000 / none:,.0f}", *seconds, *ratios)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
