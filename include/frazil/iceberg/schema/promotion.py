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

    Args:
        schema: Of the table.
        destination: What the pipeline file says of it.
        fold: Whether names that differ in case only are the same column. Of two such columns none could be filled.
    """
    if destination.evolves == "none" and not destination.is_history:
        return ()
    there = {_key(name, fold=fold) for name in (*(field.name for field in schema.fields), *destination.identifier)}
    return tuple(name for name in destination.columns if _key(name, fold=fold) not in there)


def _key(name: str, *, fold: bool) -> str:
    return name.casefold() if fold else name


def same_shape(declared: IcebergType, found: IcebergType) -> bool:
    """Whether two types are one, whatever ids their fields have."""
    return _shape(declared) == _shape(found)


def _shape(of: IcebergType) -> object:
    """A type without field ids."""
    match of:
        case ListType():
            return ("list", _shape(of.element_type))
        case MapType():
            return ("map", _shape(of.key_type), _shape(of.value_type))
        case StructType():
            return ("struct", *((f.name, _shape(f.field_type)) for f in of.fields))
    return str(of)


def has_grown_from(declared: IcebergType, found: IcebergType) -> bool:
    """Whether a column may be what became of a declared one: widened, and with more fields."""
    match declared, found:
        case ListType(), ListType():
            return has_grown_from(declared.element_type, found.element_type)
        case MapType(), MapType():
            return declared.key_type == found.key_type and has_grown_from(declared.value_type, found.value_type)
        case StructType(), StructType():
            there = {field.name: field.field_type for field in found.fields}
            return all(of.name in there and has_grown_from(of.field_type, there[of.name]) for of in declared.fields)
    return promotes(declared, found)


def promotes(found: IcebergType, to: IcebergType) -> bool:
    """Whether a column may become another type: all its files can be read as that. A type becomes itself.

    The promotions are those of table format version 2 (table specification, "Schema Evolution").
    """
    match found, to:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return found.scale == to.scale and found.precision <= to.precision
    return found == to
