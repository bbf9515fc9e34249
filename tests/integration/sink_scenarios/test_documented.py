"""Connectors as documents and users have them: imported, run on records for them, verified."""

from __future__ import annotations

import pytest

from tests.connectors import DOCUMENTED, DocumentedConnector
from tests.integration.sink_scenarios.conftest import MakePlace
from tests.integration.sink_scenarios.ending import assert_ends

pytestmark = pytest.mark.embedded


@pytest.mark.parametrize("connector", [each for each in DOCUMENTED if not each.is_merged], ids=str)
def test_imported_connector_lands_what_the_sink_lands(place: MakePlace, connector: DocumentedConnector) -> None:
    """Every record is a row or left out on record, and verify agrees."""
    new_place = place(connector.scenario())
    for records in new_place.scenario.rounds:
        new_place.send(records)
        new_place.run()

    assert_ends(new_place)
