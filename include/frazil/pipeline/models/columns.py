"""The columns of a destination, and how they follow what records bring."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from frazil.pipeline.models.value import Column
from frazil.pipeline.syntax.strict import Model

Evolve = Literal["none", "add", "widen", "full"]


class TableColumns(Model):
    """The columns of a table that are declared, and what becomes of fields that do not fit the ones it has."""

    columns: dict[str, Column] = Field(
        default_factory=dict,
        description="Column name -> type, or a mapping with type, required, doc. Left out: the columns that the table has,"
        " and those that records bring.",
    )
    evolve: Evolve | None = Field(
        None,
        description="Which changes records may make to the table, each one before the data that needs it: `none`; `add`:"
        " columns for fields that have none, also in structs; `widen`: also wider types (int to long, float to double,"
        " more digits of a decimal); `full`: also null in required columns. Without: `none` beside declared columns, else"
        " `widen`.",
    )
    undeclared_columns: Literal["keep", "refuse"] = Field(
        "keep",
        description="Columns that the table has and the file does not declare: they stay as they are, or, with `refuse`, runs and"
        " `frazil apply` refuse the table. No column is ever dropped.",
    )
    on_incompatible: Literal["rescue", "dead_letter", "variant_column", "fail"] = Field(
        "rescue",
        description="A value whose type the column can't be widened to. `rescue`: if the file does not declare the column, the"
        " record lands without it, and the field is kept as JSON in `value.rescued_column`; else the record is a dead letter."
        " `dead_letter`: it always is. `variant_column`: the value goes into a column of its own, `price__string` beside"
        " `price`. `fail`: nothing is published.",
    )
    max_columns: int = Field(
        1_000,
        gt=0,
        le=10_000,
        description="Columns that records may bring it to, those in structs counted one by one. Fields beyond are kept as"
        " one JSON object in `value.rescued_column`, and counted. What lies less deep goes first.",
    )
    max_depth: int = Field(
        24,
        gt=0,
        le=50,
        description="Levels of columns that records bring; what is deeper is kept in `value.rescued_column`.",
    )

    @field_validator("columns", mode="before", json_schema_input_type=dict[str, Column | str])
    @classmethod
    def _short_form(cls, columns: object) -> object:
        if not isinstance(columns, dict):
            return columns
        if not columns:
            raise ValueError("columns is empty: leave the key out for the columns of the table and of its records")
        return {name: {"type": column} if isinstance(column, str) else column for name, column in columns.items()}

    @property
    def evolves(self) -> Evolve:
        """`evolve`, or what it is if it is left out."""
        return self.evolve or ("none" if self.columns else "widen")

    @model_validator(mode="after")
    def _evolves_if_it_says_how(self) -> TableColumns:
        options = [name for name in ("on_incompatible", "max_columns", "max_depth") if name in self.model_fields_set]
        if options and self.evolves == "none":
            raise ValueError(f"{options[0]} is for a table that records may change: write evolve: add, widen or full")
        if self.undeclared_columns == "refuse" and (self.evolves != "none" or not self.columns):
            raise ValueError(
                "undeclared_columns: refuse is for declared columns with evolve: none: records would bring others"
            )
        return self
