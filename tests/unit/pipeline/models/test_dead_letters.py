"""Keys about dead letters in a pipeline file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from frazil.pipeline.files.files import References
from frazil.pipeline.files.load import ConfigError, load_pipeline
from frazil.pipeline.models.pipeline_file import DeadLetters, DeadLetterTopic, Tolerance

GOOD = """
name: orders
source: {topics: [orders]}
destinations: [{table: shop.orders, columns: {id: long}}]
"""


@pytest.mark.parametrize(
    ("written", "limits"),
    [
        ({}, Tolerance(max_rate=0.1, min_records=1000, max_count=None)),
        ({"tolerance": "none"}, Tolerance(max_rate=1, min_records=0, max_count=0)),
        ({"tolerance": "all"}, Tolerance(max_rate=1, min_records=0, max_count=None)),
        ({"tolerance": {"max_count": 3}}, Tolerance(max_rate=0.1, min_records=1000, max_count=3)),
    ],
)
def test_short_forms_of_tolerance_mean_their_limits(written: dict[str, Any], limits: Tolerance) -> None:
    """`none` lets not a single one through, also of a small batch; `all` lets a batch through that is nothing else."""
    assert DeadLetters.model_validate(written).limits == limits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{tolerance: some}", "dead_letters.tolerance: Input should be 'none' or 'all', found 'some'"),
        ("{tolerance: {max_rate: 2}}", "dead_letters.tolerance.max_rate: Input should be less than or equal to 1"),
        ("{on_exceed: alert}", "dead_letters.on_exceed: Input should be 'fail' or 'dead_letter_and_alert'"),
        ("{payload: hashed}", "dead_letters.payload: Input should be 'full', 'redacted' or 'none', found 'hashed'"),
        ("{topic: 'a b'}", "dead_letters.topic.name: 'a b' is not a topic name"),
        (
            "{topic: {name: letters, partitions: 0}}",
            "dead_letters.topic.partitions: Input should be greater than or equal",
        ),
        ("{topic: letters, payload: redacted}", "dead_letters: topic gets records as they came"),
        ("{topic: letters, payload: none}", "dead_letters: topic gets records as they came"),
        ("{topic: orders}", "file: the source reads topic orders, which dead_letters.topic names"),
        ("{log: 7}", "dead_letters.log: Input should be a valid boolean"),
    ],
)
def test_invalid_word_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """One complaint, with its key path and what was expected."""
    file = tmp_path / "orders.yaml"
    file.write_text(f"{GOOD}dead_letters: {text}\n")

    with pytest.raises(ConfigError) as caught:
        load_pipeline(file, References({}, {}))

    (problem,) = caught.value.problems
    assert problem.startswith(expected)


def test_bare_topic_name_is_the_short_form_of_a_mapping() -> None:
    """A bare name is the short form of a mapping."""
    assert DeadLetters.model_validate({"topic": "letters"}).topic == DeadLetterTopic(name="letters")
    assert DeadLetters().topic is None
