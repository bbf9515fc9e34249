"""What no producer should send, in its short form: `python -m tests.fuzz.decoders` runs as long as one likes."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from frazil.records.decode import Decoder
from tests.fuzz.decoders import fuzz
from tests.fuzz.promises import BrokenPromiseError, batch
from tests.fuzz.subjects import SUBJECTS, Subject
from tests.unit.records.kafka_batches import BATCH_NUMBER

pytestmark = pytest.mark.unit

INPUTS = 100
EVERY_SUBJECT = pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])


@EVERY_SUBJECT
def test_no_input_breaks_a_promise(subject: Subject):
    """Mutated values have one outcome each, keep their bytes, and leave their neighbours alone."""
    found = fuzz(subject, INPUTS, seed=7)
    assert found.broken == []
    assert sum(found.outcomes.values()) > INPUTS * 0.9  # the rest has no value
    assert found.outcomes["row"] < found.inputs or not subject.faults


@pytest.mark.parametrize("subject", SUBJECTS[:1])
def test_the_same_seed_feeds_the_same_inputs(subject: Subject):
    """A finding can be had again by its seed."""
    first, second = (fuzz(subject, 15, seed=8).outcomes for _ in range(2))
    assert first == second


@EVERY_SUBJECT
def test_a_fault_kills_its_record_alone(subject: Subject):
    """Of twenty values with each fault of the format among good ones, the faulty die and the others land."""
    decoder = Decoder(subject.spec, BATCH_NUMBER)
    for fault in subject.faults.values():
        values = [fault(subject.good(n)) if n % 7 == 3 else subject.good(n) for n in range(140)]
        good = [n for n in range(140) if n % 7 != 3]
        outcomes = batch(values, good, decoder).decoded(decoder)
        assert (len(outcomes.rows), len(outcomes.dead)) == (120, 20)


class _Forgetful(Decoder):
    """Loses the last record, as no decoder may."""

    def decode(self, batch: pa.RecordBatch):
        return super().decode(batch.slice(0, max(1, len(batch) - 1)))


def test_the_promises_can_be_broken():
    """A decoder that forgets a record is found out."""
    subject, rng = SUBJECTS[0], Random(1)
    values = [subject.good(rng.randrange(100)) for _ in range(5)]
    made = batch(values, [0], Decoder(subject.spec, BATCH_NUMBER))
    with pytest.raises(BrokenPromiseError, match="no outcome"):
        made.decoded(_Forgetful(subject.spec, BATCH_NUMBER))
