"""The scenarios of the Iceberg sink for Kafka Connect: on both catalogs, undisturbed and killed between any two publishes."""

from __future__ import annotations

import pytest

from tests.integration.sink_scenarios.conftest import MakePlace, killed_between_publishes
from tests.integration.sink_scenarios.conversion import CONVERSION
from tests.integration.sink_scenarios.creation import CREATION
from tests.integration.sink_scenarios.ending import assert_ends
from tests.integration.sink_scenarios.evolution import EVOLUTION
from tests.integration.sink_scenarios.routing import ROUTING
from tests.integration.sink_scenarios.scenario import Scenario

pytestmark = pytest.mark.embedded

SCENARIOS = (*ROUTING, *CREATION, *EVOLUTION, *CONVERSION)


def scenarios(*, killed: bool) -> pytest.MarkDecorator:
    """All scenarios; the quick form of the suite has each one once, killed where a batch has several publishes."""
    params = [
        pytest.param(scenario, marks=[pytest.mark.full] * (scenario.has_several_publishes is not killed))
        for scenario in SCENARIOS
    ]
    return pytest.mark.parametrize("scenario", params, ids=str)


@scenarios(killed=False)
def test_tables_end_as_scenario_says(place: MakePlace, scenario: Scenario) -> None:
    """Every record is a row, a dead letter or left out on record, table by table and value by value."""
    new_place = place(scenario)
    for records in scenario.rounds:
        new_place.send(records)
        new_place.run()

    assert_ends(new_place)


@scenarios(killed=True)
def test_kill_between_two_publishes_neither_loses_nor_doubles_rows(
    place: MakePlace, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    """Killed behind the decision, and again behind each table that got its part: the batch is finished, each part once."""
    new_place = place(scenario)

    states = killed_between_publishes(new_place, monkeypatch)

    assert states == list(range(len(states)))
    assert len(states) > 1 + scenario.has_several_publishes
    assert_ends(new_place)
