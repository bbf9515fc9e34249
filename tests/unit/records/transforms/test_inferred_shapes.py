"""Transforms after JsonToMap: types are inferred, so a record that does not fit is a dead letter and does not end the run."""

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
    """An object within an object is a map, which is no struct; the neighbours continue."""
    reads = transform("JsonToMap", {})
    first = When(reads, HasHeaderKey("none"), negate=True) if is_conditional else reads

    done = chain([first, UNWRAP], frame_of_array("value", TEXTS))

    assert sorted(done.dead) == [0, 3]
    assert "expected after as struct or string, found map" in done.dead[0].message
    assert sorted(position for frame in done.frames for position in frame.positions.to_pylist()) == [1, 2]


def test_declared_types_that_do_not_fit_end_the_run() -> None:
    """As without JsonToMap: a person must correct the pipeline file."""
    reads = transform("JsonToMap", {"types": pa.struct([("op", pa.int64()), ("after", pa.int64())])})

    with pytest.raises(Terminal):
        chain([reads, UNWRAP], frame_of_array("value", pa.array(['{"op": 1}'])))
