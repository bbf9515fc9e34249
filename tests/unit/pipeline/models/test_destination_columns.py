"""Options of values and columns, and their effect on records."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pydantic import ValidationError

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.value import Column
from frazil.run.staging.record_spec import record_spec


def test_column_options_reach_the_decoder() -> None:
    """An option that is read and not handed on would be worse than an unknown key."""
    columns = {
        "id": {"type": "long", "from": "order.id", "default": 7},
        "zip": {"type": "string", "from": ["customer", "address", "zip"], "default": None},
        "at": {"type": "timestamp", "unit": "ms", "local_time": "dead_letter"},
        "json": {"type": "string", "from": []},
        "plain": "int",
    }
    value = {
        "field_names": "case_insensitive",
        "duplicate_keys": "dead_letter",
        "casts": "text",
        "empty_value": "filter",
    }
    destination = {"table": "shop.orders", "columns": columns}
    pipeline = Pipeline.model_validate(
        {"name": "orders", "source": {"topics": ["orders"]}, "value": value, "destinations": [destination]}
    )
    types = [pa.int64(), pa.string(), pa.timestamp("us"), pa.string(), pa.int32()]
    spec = record_spec(pipeline, pa.schema(list(zip(columns, types, strict=True))))
    assert spec.sources == {"id": ("order.id",), "zip": ("customer", "address", "zip"), "json": ()}
    assert spec.defaults == {"id": 7, "zip": None}
    assert (spec.units, spec.local_times) == ({"at": "ms"}, {"at": "dead_letter"})
    assert (spec.field_names, spec.duplicate_keys, spec.casts) == ("case_insensitive", "dead_letter", "text")
    assert (spec.empty_value, spec.unknown_fields, spec.rescued_column) == ("filter", "ignore", "_rescued")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"type": "long", "from": []}, "takes the whole value as JSON; the type is long"),
        ({"type": "variant"}, "type variant takes the whole value, or the whole key: write from"),
        ({"type": "variant", "from": "payload"}, "type variant takes the whole value"),
        ({"type": "variant", "from": [], "default": {}}, "is never missing"),
        ({"type": "list<variant>"}, "a variant is a column of its own"),
        ({"type": "map<string, struct<a: variant>>"}, "a variant is a column of its own"),
        ({"type": "string", "from": [], "default": "x"}, "is never missing"),
        ({"type": "date", "unit": "s"}, "is for time, timestamp and timestamptz; the type is date"),
        ({"type": "timestamptz", "local_time": "dead_letter"}, "is for timestamp"),
        ({"type": "time", "unit": "m"}, "Input should be 's', 'ms', 'us' or 'ns'"),
        ({"type": "long", "from": 3}, "expected a name or a list of names"),
    ],
)
def test_option_that_has_no_meaning_is_refused(column: dict[str, object], message: str) -> None:
    """It would be ignored otherwise, and its author would not know."""
    with pytest.raises(ValidationError, match=message):
        Column.model_validate(column)
