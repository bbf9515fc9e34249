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
    """Computes the fields of each record by expressions of DuckDB's SQL.

    One row goes in, one row comes out. The expressions see the fields, and `_kafka_topic` (as routed so far), `_kafka_partition`,
    `_kafka_offset`, `_kafka_timestamp`, `_kafka_key` (text, null if it is not UTF-8) and `_kafka_headers` (a map of name to such
    text, the last one of each name: `_kafka_headers['ce_type']`); `*` stands for the fields alone. A field that an expression only
    names keeps its type. Times are in UTC. A record on which an expression fails, or whose fields don't fit the expressions, is a
    dead letter. Whole numbers wider than 64 bits become decimal(38, 0).

    `select` may not have aggregates, windows, subqueries, or functions whose result changes, such as the time of day. `where` is
    evaluated first, from left to right: after a part that decides, nothing more is evaluated.
    """

    select: str = option("Expressions as between SELECT and FROM: one row in, one row out.", "*", min_length=1)
    where: str | None = option(
        "Rows for which this condition is not true are filtered. It is evaluated from left to right.",
        None,
        min_length=1,
    )
    memory_bytes: int = option(
        "Memory that DuckDB may take in each task. It spills nothing to disk; a record that needs more is a dead letter.",
        MEMORY_BYTES,
        ge=64 * 2**20,
    )

    def __post_init__(self) -> None:
        if self.select.strip() == "*" and self.where is None:
            raise ValueError("nothing to do: write select or where")

    def check(self, fields: pa.Schema) -> pa.Schema:
        """Return the fields of the result for values with `fields`.

        Raises:
            Terminal: The expressions can't be parsed, are not allowed, or don't fit the fields; with DuckDB's message.
        """
        from frazil.records.transforms.sql.plan import plan

        return plan(self.select, self.where, fields).schema

    def lacks(self, frame: Frame) -> Iterator[MissingField]:
        """Yield what DuckDB reports: missing columns, and anything else that does not fit the fields."""
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
        """Return the casefolded names that the expressions read or output; None if every field matters."""
        from frazil.records.transforms.sql.plan import named_columns

        return named_columns(self.select, self.where)

    def apply(self, frame: Frame) -> Transformed:
        """Run the expressions."""
        from frazil.records.transforms.sql.rows import apply_expressions

        return apply_expressions(self, frame)
