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

from frazil.pipeline import model


def takes_table_columns(destination: model.Destination) -> bool:
    """Whether rows have all columns that the table has, not only the declared ones."""
    return destination.evolves != "none" or not destination.columns


def coming_columns(schema: Schema, destination: model.Destination) -> tuple[str, ...]:
    """Declared columns that a table lacks and gets, because it evolves. A key can't come later: no row would have it."""
    there = {field.name for field in schema.fields}
    if destination.evolves == "none":
        return ()
    return tuple(name for name in destination.columns if name not in {*there, *destination.identifier})


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
