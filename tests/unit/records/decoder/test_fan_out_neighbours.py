"""Random records, transforms and batches: each record has the outcome that it has alone."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.route import Route, StaticRoute
from tests.unit.records.alone import Became, became, cut_up, joined, one_by_one
from tests.unit.records.chains import specs
from tests.unit.records.random_records import ENCODERS, batches

ROUTE = Route(StaticRoute(("name",), {"t0": "x|s", "t1": ".*"}), "filter")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def plain(fates: Became) -> Became:
    """The outcome without DuckDB's messages, which depend on the rows that are evaluated together."""
    return replace(fates, dead=[re.sub(r"Sql: .*", "Sql", letter) for letter in fates.dead])


def check(data: st.DataObject, encoder: str) -> None:
    """Decode random records together, cut up and one by one, into one table or into two."""
    spec, records = data.draw(specs(encoder)), data.draw(batches(encoder))
    fan_out = (
        Decoder({"t0": spec, "t1": spec}, ROUTE, 7) if data.draw(st.booleans()) else Decoder({"t0": spec}, None, 7)
    )
    alone = plain(joined(became(fan_out, batch) for batch in one_by_one(records)))

    sizes = data.draw(st.lists(st.integers(1, 4), max_size=3))
    assert plain(joined(became(fan_out, batch) for batch in cut_up(records, sizes))) == alone
    assert plain(became(fan_out, records)) == alone


@pytest.mark.parametrize("encoder", ENCODERS)
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_outcomes_do_not_depend_on_batch_boundaries(encoder: str, data: st.DataObject) -> None:
    """Rows, letters, filters and unknown fields are those of the records one by one."""
    check(data, encoder)
