"""SQL expressions over decoded records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from frazil.errors import Terminal
from frazil.records import pa
from frazil.records.model.format import Frame, MissingField, Transformed
from frazil.records.transforms.definition import TransformDefinition, option
from frazil.records.transforms.sql.engine import MEMORY_BYTES


@dataclass(frozen=True, slots=True)
class Sql(TransformDefinition):
    """Makes the fields of each record by expressions of DuckDB's SQL.

    One row in, one row out. The expressions see the fields, and beside them `_kafka_topic` (as routed so far),
    `_kafka_partition`, `_kafka_offset`, `_kafka_timestamp`, `_kafka_key` (text, null if it is not UTF-8) and `_kafka_headers` (a
    map of name to such text, the last one of each name: `_kafka_headers['ce_type']`), which `*` does not stand for. Fields that are merely named keep their type. Times are in UTC. A row on which an expression fails becomes a dead
    letter; records of a shape that the expressions don't fit fail. Whole numbers wider than 64 bits become decimal(38, 0).

    `select` takes no aggregates, windows, subqueries, nor functions with another result each time, such as the time of day.
    `where` is asked before it, its parts from left to right: what stands behind one that decides is not asked.
    """

    select: str = option("What stands between SELECT and FROM: one row in, one row out.", "*", min_length=1)
    where: str | None = option("Rows where it is not true are filtered; asked from left to right.", None, min_length=1)
    memory_bytes: int = option(
        "Memory that DuckDB may take in each task. It spills nothing to disk; a record that needs more is a dead letter.",
        MEMORY_BYTES,
        ge=64 * 2**20,
    )

    def __post_init__(self) -> None:
        if self.select.strip() == "*" and self.where is None:
            raise ValueError("nothing to do: write select or where")

    def check(self, fields: pa.Schema) -> pa.Schema:
        """Return the fields that the expressions make of values with `fields`.

        Raises:
            Terminal: they can't be parsed, hold what is not allowed or don't fit the fields; with DuckDB's message.
        """
        from frazil.records.transforms.sql.plan import plan

        return plan(self.select, self.where, fields).schema

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield what DuckDB reports: columns that do not exist, and whatever else does not fit the fields."""
        from frazil.records.transforms.sql.plan import plan

        fields = frame.value.schema
        try:
            plan(self.select, None, fields)
        except Terminal as e:
            yield MissingField("select", e.message)
            return
        try:
            plan(self.select, self.where, fields)
        except Terminal as e:
            yield MissingField("where", e.message)

    def referenced_names(self) -> frozenset[str] | None:
        """Return the folded names that the expressions read or make; None if every field matters."""
        from frazil.records.transforms.sql.plan import named_columns

        return named_columns(self.select, self.where)

    def apply(self, frame: Frame) -> Transformed:
        """Run the expressions."""
        from frazil.records.transforms.sql.rows import apply_expressions

        return apply_expressions(self, frame)
