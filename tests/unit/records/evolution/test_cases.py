"""Each change of records does to its table what the docs say."""

from __future__ import annotations

import pytest

from tests.unit.records.evolution.case import LEVELS, Case
from tests.unit.records.evolution.cases import cases


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.group.split()[0]} {case.change}")
def test_table_follows_its_records_as_the_docs_say(case: Case, level: str) -> None:
    """One record of a kind that the table has not seen: the changes it asks for, and what becomes of it."""
    assert case.outcome(level) == case.result(level)
