"""Sql on any records: neighbours and texts make no difference."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from frazil.records.transforms.kinds.sql import Sql
from tests.unit.records.transforms.frames import dead_messages, frame_of, frame_of_array, run


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["1", "22", "x", "", None]), min_size=1, max_size=4), st.booleans())
def test_outcomes_do_not_depend_on_neighbours(texts: list, with_where: bool):
    """Each row lands, fails or is filtered as it would alone, from slices too."""
    transform = Sql("t::INT AS n", "t::INT > 5 OR t IS NULL" if with_where else None)
    alone = [run(transform, frame_of([{"t": text}], pa.schema([("t", pa.string())]))) for text in texts]

    at_once = run(transform, frame_of([{"t": text} for text in texts], pa.schema([("t", pa.string())])))

    assert at_once.frame.positions.to_pylist() == [index for index, one in enumerate(alone) if len(one.frame)]
    assert dead_messages(at_once) == {index: one.dead[0].message for index, one in enumerate(alone) if one.dead}


@settings(max_examples=60)
@given(st.lists(st.none() | st.text(max_size=6), min_size=1, max_size=8))
def test_any_text_passes_through_an_expression(texts: list):
    """Unicode, nulls and zero bytes."""
    done = run(Sql("t || '' AS u"), frame_of_array("t", pa.array(texts, pa.string())))

    assert done.frame.value["u"].to_pylist() == texts
