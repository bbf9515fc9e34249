"""Feeds the decoders what no producer should send: `python -m tests.fuzz.decoders --inputs 1000000 --seed 1`.

Good values are mutated and put between good neighbours; `tests.fuzz.promises` says what must hold of every batch. Now and
then a batch is decoded again, without blocks where the format has them and in two halves, and must come out the same.
Prints a line per format: inputs, seconds, what became of them, and findings. A finding is shrunk to one input where one
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

import pyarrow as pa

from frazil.records.decode import Decoder
from frazil.records.outcome import Outcomes
from tests.fuzz.promises import Batch, BrokenPromiseError, batch, random_batch, same, shown
from tests.fuzz.subjects import SUBJECTS, Subject
from tests.unit.records.kafka_batches import BATCH_NUMBER, kafka_batch

BATCH = 250
"""Inputs per batch; blocks are parsed from a handful on."""

AGAIN_EVERY = 16
"""One batch in so many is decoded again in other ways."""


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
    decoder = Decoder(subject.spec, BATCH_NUMBER)
    exact = Decoder(subject.spec, BATCH_NUMBER, blocks=False)
    found, began, number = Findings(), time.monotonic(), 0
    while found.inputs < inputs:
        size = min(BATCH, inputs - found.inputs)
        made = random_batch(rng, subject, decoder, size)
        found.inputs += size
        try:
            outcomes = made.decoded(decoder)
            if number % AGAIN_EVERY == 0:
                _again(made, exact, outcomes)
            _count(found.outcomes, outcomes, made)
        except BrokenPromiseError as broken:
            found.broken.append((str(broken), _culprit(made, decoder)))
        number += 1
    found.seconds = time.monotonic() - began
    return found


def _again(made: Batch, exact: Decoder, outcomes: Outcomes) -> None:
    """Decode without blocks, and in two halves: neither may make a difference."""
    if not same(outcomes, made.decoded(exact)):
        raise BrokenPromiseError("blocks make a difference")
    records = kafka_batch(made.values)
    middle = len(records) // 2
    halves = [exact.decode(half) for half in (records.slice(0, middle), records.slice(middle))]
    for of, whole in (("rows", outcomes.rows), ("dead", outcomes.dead)):
        if [row for half in halves for row in shown(getattr(half, of))] != shown(whole):
            raise BrokenPromiseError(f"neighbours make a difference to {of}")


def _count(into: Counter[str], outcomes: Outcomes, made: Batch) -> None:
    into["row"] += len(outcomes.rows) - len(made.good)
    into.update(outcomes.dead["code"].to_pylist())


def _culprit(made: Batch, decoder: Decoder) -> bytes | None:
    """Return the input that breaks a promise alone between two good neighbours, or None if it takes several."""
    good = made.values[made.good[0].as_py()] if len(made.good) else None
    for value in made.values:
        one = Batch([value], pa.array([], pa.int64()), made.rows.slice(0, 0))
        try:
            one.decoded(decoder)
            if good is not None:
                batch([good, value, good], [0, 2], decoder).decoded(decoder)
        except BrokenPromiseError:
            return value
    return None


def main() -> int:
    """Fuzz, print, and return 0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs over all formats, or for the one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=[subject.name for subject in SUBJECTS])
    asked = parser.parse_args()
    chosen = [subject for subject in SUBJECTS if asked.format in {None, subject.name}]
    broken = 0
    for subject in chosen:
        found = fuzz(subject, -(-asked.inputs // len(chosen)), asked.seed)
        broken += len(found.broken)
        for line in _said(subject, found):
            print(line, flush=True)  # noqa: T201
    return 1 if broken else 0


def _said(subject: Subject, found: Findings) -> Iterator[str]:
    became = ", ".join(f"{code} {times:,}" for code, times in found.outcomes.most_common())
    yield f"{subject.name}: {found.inputs:,} inputs, {found.seconds:.0f} s, {len(found.broken)} findings; {became}"
    for message, culprit in found.broken[:10]:
        shown = "several inputs together" if culprit is None else f"{len(culprit)} bytes: {culprit[:300]!r}"
        yield f"    {message}; {shown}"


if __name__ == "__main__":
    sys.exit(main())
