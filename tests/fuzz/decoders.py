"""Feeds the decoders what no producer should send: `python -m tests.fuzz.decoders --inputs 1000000 --seed 1`.

Good values are mutated and put between good neighbours; `tests.fuzz.promises` says what must hold of every batch. Now and
then a batch is decoded again, without blocks where the format has them and in two halves, and must come out the same. Protobuf
messages are all read as columns and one by one, which must be the same.
Prints a line per format, and how it is landed: inputs, seconds, what became of them, and findings. A finding is shrunk to one input where one
is enough. The seed decides every input.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from resource import RUSAGE_SELF, getrusage

import pyarrow as pa

from tests.fuzz import structures
from tests.fuzz.promises import Batch, BrokenPromiseError, Landing, random_batch, same, shown
from tests.fuzz.subjects import SUBJECTS, Subject
from tests.fuzz.ways import CELLS
from tests.fuzz.writers import PROTO
from tests.unit.records.formats.protobuf_messages import codec
from tests.unit.records.formats.protobuf_messages import outcomes as outcomes_of
from tests.unit.records.kafka_batches import OneTableOutcomes

BATCH = 250
"""Inputs per batch; blocks are parsed from a handful on."""

AGAIN_EVERY = 16
"""One batch in so many is decoded again in other ways."""

NEW_TABLE_EVERY = 40
"""A table that follows its records begins anew after so many batches."""

EVERY = (*SUBJECTS, *CELLS)


@dataclass(slots=True)
class Findings:
    """What fuzzing one format found."""

    inputs: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[str, bytes | None]] = field(default_factory=list)


def fuzz(subject: Subject, inputs: int, seed: int) -> Findings:
    """Feed the decoder of a format, and return what happened."""
    rng = Random(f"{subject.name} {seed}")
    decoder = Landing(subject)
    findings, began, number = Findings(), time.monotonic(), 0
    while findings.inputs < inputs:
        if number % NEW_TABLE_EVERY == 0:
            decoder = Landing(subject)
        size = min(BATCH, inputs - findings.inputs)
        batch = random_batch(rng, subject, size)
        findings.inputs += size
        try:
            outcomes = batch.decoded(decoder)
            _as_columns(batch, subject)
            if number % AGAIN_EVERY == 0:
                _again(batch, decoder.without_blocks(), outcomes)
            _count(findings.outcomes, outcomes, batch)
        except BrokenPromiseError as broken:
            findings.broken.append((str(broken), _culprit(batch, subject)))
        number += 1
    findings.seconds = time.monotonic() - began
    return findings


def _again(batch: Batch, exact: Landing, outcomes: OneTableOutcomes) -> None:
    """Decode without blocks, and in two halves: neither may make a difference."""
    if not same(outcomes, batch.decoded(exact)):
        raise BrokenPromiseError("blocks make a difference")
    middle = len(batch.records) // 2
    halves = [exact.decode(half) for half in (batch.records.slice(0, middle), batch.records.slice(middle))]
    for part, whole in (("rows", outcomes.rows), ("dead", outcomes.dead)):
        if [row for half in halves for row in shown(getattr(half, part))] != shown(whole):
            raise BrokenPromiseError(f"neighbours make a difference to {part}")


def _as_columns(batch: Batch, subject: Subject) -> None:
    """Read Protobuf messages as columns and one by one: values, reasons and unknown fields are the same."""
    if subject.structure is not structures.protobuf:
        return
    values = [value for value in batch.records["value"].to_pylist() if value and value.startswith(subject.head)]
    payloads = pa.array([value[len(subject.head) :] for value in values], pa.binary())
    kind = codec("Sale", PROTO)
    if outcomes_of(kind.decode(payloads)) != outcomes_of(kind.rows.decode(payloads)):
        raise BrokenPromiseError("columns make a difference")


def _count(totals: Counter[str], outcomes: OneTableOutcomes, batch: Batch) -> None:
    totals["row"] += len(outcomes.rows)
    totals.update(outcomes.dead["code"].to_pylist())


def _culprit(batch: Batch, subject: Subject) -> bytes | None:
    """Return the input that breaks a promise alone between two good neighbours, or None if it takes several."""
    good = batch.good[0].as_py() if len(batch.good) else None
    for index in range(len(batch.records)):
        places = [index] if good is None or good == index else sorted([index, good])
        one = Batch(batch.records.take(places), pa.array([], pa.int64()))
        try:
            one.decoded(Landing(subject))
        except BrokenPromiseError:
            return batch.records["value"][index].as_py()  # type: ignore[no-any-return]
    return None


def main() -> int:
    """Fuzz, print, and return 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs over all formats, or for the one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", type=int, default=0, help="MiB that the process may take at most")
    parser.add_argument("--format", choices=[subject.name for subject in EVERY])
    args = parser.parse_args()
    chosen = [subject for subject in EVERY if args.format in {None, subject.name}]
    broken = 0
    for subject in chosen:
        findings = fuzz(subject, -(-args.inputs // len(chosen)), args.seed)
        broken += len(findings.broken)
        for line in _lines(subject, findings):
            print(line, flush=True)  # noqa: T201
    peak = getrusage(RUSAGE_SELF).ru_maxrss // 1024
    print(f"peak of memory: {peak:,} MiB", flush=True)  # noqa: T201
    return 1 if broken or (args.memory and peak > args.memory) else 0


def _lines(subject: Subject, findings: Findings) -> Iterator[str]:
    became = ", ".join(f"{code} {times:,}" for code, times in findings.outcomes.most_common())
    yield f"{subject.name}: {findings.inputs:,} inputs, {findings.seconds:.0f} s, {len(findings.broken)} findings; {became}"
    for message, culprit in findings.broken[:10]:
        shown = "several inputs together" if culprit is None else f"{len(culprit)} bytes: {culprit[:300]!r}"
        yield f"    {message}; {shown}"


if __name__ == "__main__":
    sys.exit(main())
