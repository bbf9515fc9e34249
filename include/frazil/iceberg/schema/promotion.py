"""Types that a column may become, and tables that follow their records: what still is the column that was declared."""

from __future__ import annotations

from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from frazil.pipeline.models import pipeline_file


def takes_table_columns(destination: pipeline_file.Destination) -> bool:
    """Whether rows have all columns that the table has, not only the declared ones."""
    return destination.evolves != "none" or not destination.columns


def same_shape(declared: IcebergType, actual: IcebergType) -> bool:
    """Whether two types are equal, field ids aside."""
    return _shape(declared) == _shape(actual)


def _shape(iceberg_type: IcebergType) -> object:
    """A type without field ids."""
    match iceberg_type:
        case ListType():
            return ("list", _shape(iceberg_type.element_type))
        case MapType():
            return ("map", _shape(iceberg_type.key_type), _shape(iceberg_type.value_type))
        case StructType():
            return ("struct", *((f.name, _shape(f.field_type)) for f in iceberg_type.fields))
    return str(iceberg_type)


def promotes(current: IcebergType, target: IcebergType) -> bool:
    """Whether a column may be promoted to another type, as which all its files can be read. Each type promotes to itself.

    The promotions are those of table format version 2 (table specification, "Schema Evolution").
    """
    match current, target:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return current.scale == target.scale and current.precision <= target.precision
    return current == target
