"""Transforms behind JsonToMap: its objects tell their own types, so what does not fit them is a dead letter and ends no run."""

from __future__ import annotations

import pyarrow as pa
import pytest

from frazil.errors import Terminal
from frazil.records.transforms.catalogue import transform
from frazil.records.transforms.chain import chain
from frazil.records.transforms.kinds.conditions import HasHeaderKey, When
from tests.unit.records.transforms.frames import frame_of_array

TEXTS = pa.array(['{"op": "c", "after": {"id": 1}}', '{"op": 1}', '{"id": 1}', "no object"])
UNWRAP = transform("ExtractNewRecordState", {})


@pytest.mark.parametrize("is_conditional", [False, True])
def test_object_that_does_not_fit_the_next_transform_is_a_dead_letter(is_conditional: bool) -> None:
    """An object within one is a map, which is no row; neighbours go on."""
    reads = transform("JsonToMap", {})
    first = When(reads, HasHeaderKey("none"), negate=True) if is_conditional else reads

    done = chain([first, UNWRAP], frame_of_array("value", TEXTS))

    assert sorted(done.dead) == [0, 3]
    assert "expected after as struct or string, found map" in done.dead[0].message
    assert sorted(position for frame in done.frames for position in frame.positions.to_pylist()) == [1, 2]


def test_types_that_somebody_declares_are_the_business_of_a_person() -> None:
    """As they are without JsonToMap."""
    reads = transform("JsonToMap", {"types": pa.struct([("op", pa.int64()), ("after", pa.int64())])})

    with pytest.raises(Terminal):
        chain([reads, UNWRAP], frame_of_array("value", pa.array(['{"op": 1}'])))
