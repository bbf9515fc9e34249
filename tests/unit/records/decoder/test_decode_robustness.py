"""What no producer should send, in its short form: `python -m tests.fuzz.decoders` runs as long as one likes."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pyarrow as pa
import pytest

from frazil.records.model.dead_letter import DeadCode
from tests.fuzz.decoders import EVERY, fuzz
from tests.fuzz.promises import BrokenPromiseError, batch
from tests.fuzz.subjects import SUBJECTS, Subject
from tests.fuzz.ways import CELLS
from tests.unit.records.kafka_batches import BATCH_NUMBER, OneTable, kafka_batch

pytestmark = pytest.mark.unit

INPUTS = 100
INPUTS_OF_CELL = 40
EVERY_SUBJECT = pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])


@EVERY_SUBJECT
def test_no_input_breaks_a_promise(subject: Subject):
    """Mutated values have one outcome each, keep their bytes, and leave their neighbours alone."""
    findings = fuzz(subject, INPUTS, seed=7)
    assert findings.broken == []
    assert sum(findings.outcomes.values()) > INPUTS * 0.9  # the rest has no value
    assert findings.outcomes["row"] < findings.inputs or not subject.faults


@pytest.mark.parametrize("cell", CELLS, ids=[cell.name for cell in CELLS])
def test_each_record_has_one_outcome_on_every_write_path(cell: Subject):
    """In each format: declared columns, followed ones, behind SQL, merged, for ORC files and version 3."""
    findings = fuzz(cell, INPUTS_OF_CELL, seed=9)
    assert findings.broken == []
    assert sum(findings.outcomes.values()) > INPUTS_OF_CELL * 0.9


@pytest.mark.full
def test_two_thousand_records_of_each_path_stay_below_a_gigabyte():
    """The whole room, in one process whose memory is looked at in the end."""
    inputs = str(2_000 * len(EVERY))
    command = [sys.executable, "-m", "tests.fuzz.decoders", "--inputs", inputs, "--seed", "11", "--memory", "1024"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]


@pytest.mark.parametrize("value", [b'{"id": "x", "name": "\\ud800"}', b'{"id": [], "name": ["\\udc00"]}'])
def test_a_violation_beside_half_a_character_is_a_dead_letter(value: bytes):
    """A rule that is broken before such a text is met has no explanation, and an outcome nevertheless."""
    subject = next(each for each in SUBJECTS if each.name == "json-schema")
    outcomes = OneTable(subject.spec, BATCH_NUMBER).decode(kafka_batch([subject.head + value]))
    assert outcomes.dead["code"].to_pylist()[0] in {DeadCode.SCHEMA_VIOLATION, DeadCode.LONE_SURROGATE}


@pytest.mark.parametrize("subject", SUBJECTS[:1])
def test_the_same_seed_feeds_the_same_inputs(subject: Subject):
    """A finding can be had again by its seed."""
    first, second = (fuzz(subject, 15, seed=8).outcomes for _ in range(2))
    assert first == second


@EVERY_SUBJECT
def test_a_fault_kills_its_record_alone(subject: Subject):
    """Of twenty values with each fault of the format among good ones, the faulty die and the others land."""
    decoder = OneTable(subject.spec, BATCH_NUMBER)
    for fault in subject.faults.values():
        values = [fault(subject.good(n)) if n % 7 == 3 else subject.good(n) for n in range(140)]
        good = [n for n in range(140) if n % 7 != 3]
        outcomes = batch(values, good).decoded(decoder)
        assert (len(outcomes.rows), len(outcomes.dead)) == (120, 20)


class _Forgetful(OneTable):
    """Loses the last record, as no decoder may."""

    def decode(self, batch: pa.RecordBatch):
        return super().decode(batch.slice(0, max(1, len(batch) - 1)))


def test_decoder_that_forgets_a_record_fails_the_promises():
    """A decoder that forgets a record is found out."""
    subject, rng = SUBJECTS[0], Random(1)
    values = [subject.good(rng.randrange(100)) for _ in range(5)]
    record_batch = batch(values, [0])
    with pytest.raises(BrokenPromiseError, match="no outcome"):
        record_batch.decoded(_Forgetful(subject.spec, BATCH_NUMBER))
