"""What Frazil teaches PyIceberg 0.12 of variants, and what a newer PyIceberg may know itself."""

from __future__ import annotations

import pyarrow as pa
import pyiceberg.io.pyarrow as pyiceberg_arrow
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType

from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.commit.commit import fit_of
from frazil.iceberg.patches import metadata
from frazil.iceberg.patches.metadata import VariantType, as_text, metadata_text

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "doc", VariantType(), doc="as it came"))
PROPERTIES = {"format-version": "3", "write.format.default": "parquet"}


def test_pyiceberg_does_not_know_variants_yet() -> None:
    """When one of these fails, the module that teaches it is needless."""
    with pytest.raises((ValueError, TypeError)):
        metadata._known_type(IcebergType, "variant", None)
    assert TableMetadataV3.model_fields["next_row_id"].alias == "next-row-id"
    with pytest.raises(NotImplementedError):
        TableMetadataV3.model_dump_json(TableMetadataV3.model_construct())


def test_table_of_version_3_is_created_once_without_an_engine(lake: Lake) -> None:
    """It is made, found again with its type, and made once."""
    table = lake.create_table("shop.docs", SCHEMA, UNPARTITIONED_PARTITION_SPEC, PROPERTIES)
    again = lake.create_table("shop.docs", SCHEMA, UNPARTITIONED_PARTITION_SPEC, PROPERTIES)
    loaded = lake.load_table("shop.docs")
    assert loaded.format_version == 3
    assert loaded.schema().find_type("doc") == VariantType()
    assert loaded.metadata.table_uuid == table.metadata.table_uuid == again.metadata.table_uuid
    assert loaded.metadata.next_row_id == 0
    assert dict(loaded.properties) == {"write.format.default": "parquet"}
    assert fit_of(loaded.metadata).fields == {1: "long", 2: "variant"}


def test_metadata_of_a_table_with_snapshots_is_not_rewritten(filled: Lake) -> None:
    """Metadata of a table that has snapshots is nobody's to write but an engine's."""
    table = filled.load_table(filled.tables()[0])
    with pytest.raises(ValueError, match="without snapshots"):
        metadata_text(table.metadata)


def test_rows_of_a_variant_are_staged_as_texts() -> None:
    """They are staged as the texts that become variants; other columns as they are."""
    texts = schema_to_pyarrow(as_text(SCHEMA), include_field_ids=False)
    assert texts.types == [pa.int64(), schema_to_pyarrow(Schema(NestedField(1, "s", StringType())))[0].type]


def test_file_with_variants_shows_its_other_columns() -> None:
    """The parts of a variant have no field ids; a file of a table without any still is refused."""

    def numbered_field(name: str, data_type: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, data_type, metadata={b"PARQUET:field_id": str(number).encode()})

    group = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])
    written = pa.schema([numbered_field("id", pa.int32(), 1), numbered_field("doc", group, 2)])
    assert pyiceberg_arrow.pyarrow_to_schema(written) == Schema(NestedField(1, "id", IntegerType()))
    with pytest.raises(ValueError, match="field-ids"):
        metadata.pyarrow_to_schema(written)
    with pytest.raises(ValueError, match="field-ids"):
        pyiceberg_arrow.pyarrow_to_schema(pa.schema([pa.field("id", pa.int32())]))
