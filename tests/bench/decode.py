"""What dead letters cost: CPU time of decoding batches of which none, one in 1,000 or one in 10 records is bad.

    python -m tests.bench.decode [--format NAME] [--rounds 5]

Prints per format and kind of fault the records per second of CPU time, and for each rate of dead letters CPU seconds per
million records and their ratio to none. Batches have 10,000 records of ten columns (texts and numbers: of one); the best
of the rounds counts, and rates take turns, so that other work on the machine hits all of them alike.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from frazil.records.decode import Decoder
from tests.fuzz.subjects import SUBJECTS, Subject
from tests.unit.records.kafka_batches import BATCH_NUMBER, kafka_batch

RECORDS = 10_000
RATES = (0, 1_000, 10)
"""One bad record in so many; 0: none."""

NAMED = ("0 %", "0.1 %", "10 %")
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


def cpu_seconds(decoder: Decoder, records: pa.RecordBatch, dead: int) -> float:
    """CPU time of one batch, which must have so many dead letters."""
    began = time.process_time()
    outcomes = decoder.decode(records)
    took = time.process_time() - began
    if len(outcomes.dead) != dead:
        sys.exit(f"expected {dead} dead letters, found {len(outcomes.dead)}")
    return took


def measured(subject: Subject, fault: str, rounds: int) -> list[float]:
    """CPU seconds per million records at each rate: the best round."""
    decoder = Decoder(subject.spec, BATCH_NUMBER)
    made = [
        (records, RECORDS // every if every else 0)
        for every, records in zip(RATES, batches(subject, fault), strict=True)
    ]
    gc.collect()
    gc.disable()
    found = [[cpu_seconds(decoder, *one) for one in made] for _ in range(rounds + 1)]
    gc.enable()
    return [min(rates) * 1_000_000 / RECORDS for rates in zip(*found[1:], strict=True)]


def rows(chosen: list[Subject], rounds: int) -> Iterator[tuple[str, str, list[float]]]:
    """Measure one kind of fault after the other."""
    for subject in chosen:
        for fault in subject.faults:
            yield subject.name, fault, measured(subject, fault, rounds)


def _print(name: str, fault: str, *figures: str) -> None:
    print(f"{name:<18}{fault:<18}" + "".join(f"{figure:>12}" for figure in figures), flush=True)  # noqa: T201


def main() -> int:
    """Measure, print, and return 1 if one in 1,000 costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--format", choices=[subject.name for subject in SUBJECTS])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    chosen = [subject for subject in SUBJECTS if asked.format in {None, subject.name}]
    _print("format", "dead letters are", "records/s", *(f"s/M {rate}" for rate in NAMED), *NAMED[1:])
    over = 0
    for name, fault, seconds in rows(chosen, asked.rounds):
        ratios = [one / seconds[0] for one in seconds[1:]]
        over += ratios[0] > LIMIT
        shown = [f"{1_000_000 / seconds[0]:,.0f}", *(f"{one:.2f}" for one in seconds)]
        _print(name, fault, *shown, *(f"{one:.2f} x" for one in ratios))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
