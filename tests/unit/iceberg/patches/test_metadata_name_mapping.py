"""Files without field ids show the columns that the table's name mapping names, and no reader stumbles over others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, pyarrow_to_schema
from pyiceberg.table.name_mapping import apply_name_mapping, parse_mapping_from_json

import frazil.iceberg.catalog.catalog  # noqa: F401  # mends the reader

MAPPING = parse_mapping_from_json(
    '[{"field-id":1,"names":["id","nr"]},{"field-id":2,"names":["at"],"fields":[{"field-id":3,"names":["city"]}]},'
    '{"field-id":4,"names":["tags"],"fields":[{"field-id":5,"names":["element"]}]},'
    '{"field-id":6,"names":["by_key"],"fields":[{"field-id":7,"names":["key"]},{"field-id":8,"names":["value"]}]},'
    '{"names":["known_without_id"]},{"field-id":9,"names":["half"],"fields":[{"field-id":10,"names":["key"]}]},'
    '{"field-id":11,"names":["bare"]}]'
)

CASES = {
    "each column by one of its names": (pa.schema([("nr", pa.int64())]), {"nr": 1}),
    "no column without a name": (pa.schema([("id", pa.int64()), ("extra", pa.string())]), {"id": 1}),
    "no column without an id": (pa.schema([("id", pa.int64()), ("known_without_id", pa.string())]), {"id": 1}),
    "fields inside": (
        pa.schema([("at", pa.struct([("city", pa.string()), ("extra", pa.list_(pa.int64()))]))]),
        {"at": 2, "at.city": 3},
    ),
    "a list": (pa.schema([("tags", pa.list_(pa.string()))]), {"tags": 4, "tags.element": 5}),
    "a map": (
        pa.schema([("by_key", pa.map_(pa.string(), pa.int64()))]),
        {"by_key": 6, "by_key.key": 7, "by_key.value": 8},
    ),
    "no map, list or struct of which the mapping lacks a part": (
        pa.schema(
            [
                ("id", pa.int64()),
                ("half", pa.map_(pa.string(), pa.int64())),
                ("bare", pa.list_(pa.int64())),
                ("other", pa.map_(pa.string(), pa.struct([("a", pa.list_(pa.int8()))]))),
            ]
        ),
        {"id": 1},
    ),
}


@pytest.mark.parametrize(("columns", "ids"), CASES.values(), ids=CASES)
def test_file_without_ids_shows(columns: pa.Schema, ids: dict[str, int]) -> None:
    """The mapping's fields have its ids; all others are left out, as Iceberg's libraries do."""
    schema = pyarrow_to_schema(columns, MAPPING)
    assert {schema.find_column_name(number): number for number in schema.field_ids} == ids


def test_patch_of_name_mapping_is_still_needed() -> None:
    """As long as PyIceberg's own function refuses such a file, `frazil.iceberg.patches.metadata` is needed."""
    schema = _pyarrow_to_schema_without_ids(pa.schema([("id", pa.int64()), ("extra", pa.string())]))
    with pytest.raises(ValueError, match="extra"):
        apply_name_mapping(schema, MAPPING)
