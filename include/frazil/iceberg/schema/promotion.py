"""Types that a column may become, and tables that follow their records: what still is the column that was declared."""

from __future__ import annotations

from pyiceberg.schema import Schema
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


def coming_columns(schema: Schema, destination: pipeline_file.Destination, *, fold: bool = False) -> tuple[str, ...]:
    """Declared columns that a table lacks and gets, because it evolves, or is a log: none of its columns is required.

    A key can't come later: no row would have it.

    With `fold` names that differ in case only are the same column: of two such columns none could be filled.
    """
    if destination.evolves == "none" and not destination.is_history:
        return ()
    existing_names = {
        _key(name, fold=fold) for name in (*(field.name for field in schema.fields), *destination.identifier)
    }
    return tuple(name for name in destination.columns if _key(name, fold=fold) not in existing_names)


def _key(name: str, *, fold: bool) -> str:
    return name.casefold() if fold else name


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


def has_grown_from(declared: IcebergType, actual: IcebergType) -> bool:
    """Whether a column's type may have evolved from the declared one: widened, or with further fields."""
    match declared, actual:
        case ListType(), ListType():
            return has_grown_from(declared.element_type, actual.element_type)
        case MapType(), MapType():
            return declared.key_type == actual.key_type and has_grown_from(declared.value_type, actual.value_type)
        case StructType(), StructType():
            actual_fields = {field.name: field.field_type for field in actual.fields}
            return all(
                field.name in actual_fields and has_grown_from(field.field_type, actual_fields[field.name])
                for field in declared.fields
            )
    return promotes(declared, actual)


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
