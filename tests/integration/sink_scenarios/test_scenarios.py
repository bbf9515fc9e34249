"""The scenarios of the Iceberg sink for Kafka Connect: on both catalogs, undisturbed and killed between any two publishes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.sink_scenarios.conftest import MakePlace, Place
from tests.integration.sink_scenarios.conversion import CONVERSION
from tests.integration.sink_scenarios.creation import CREATION
from tests.integration.sink_scenarios.ending import assert_ends
from tests.integration.sink_scenarios.evolution import EVOLUTION
from tests.integration.sink_scenarios.routing import ROUTING
from tests.integration.sink_scenarios.scenario import Scenario
from tests.operations import Killed

SCENARIOS = (*ROUTING, *CREATION, *EVOLUTION, *CONVERSION)

FULL = pytest.mark.full


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_tables_end_otherwise_than_the_scenario_says(place: MakePlace, scenario: Scenario) -> None:
    """Every record is a row, a dead letter or left out on record, table by table and value by value."""
    made = place(scenario)
    for records in scenario.rounds:
        made.send(records)
        made.run()

    assert_ends(made)


@pytest.mark.parametrize(
    "scenario", [pytest.param(of, marks=[FULL] * (not of.has_several_publishes)) for of in SCENARIOS], ids=str
)
def test_kill_between_two_publishes_loses_or_doubles_rows(
    place: MakePlace, killed_behind: Callable[[int], None], scenario: Scenario
) -> None:
    """Killed behind the decision, and again behind each table that got its part: the batch is finished, each part once."""
    made = place(scenario)
    made.run()
    *earlier, last = scenario.rounds
    for records in earlier:
        made.send(records)
        made.run()
    made.send(last)
    decided = made.publishes + 1
    states = []
    killed_behind(0)
    while is_killed(made):
        states.append(made.publishes - decided)
        killed_behind(1)

    assert states == list(range(made.publishes - decided))
    assert_ends(made)


def is_killed(made: Place) -> bool:
    """Whether a run was killed."""
    try:
        made.run()
    except Killed:
        return True
    return False
