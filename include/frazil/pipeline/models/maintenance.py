"""Keys for table maintenance: its schedule, its steps, and their thresholds."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from frazil.pipeline.syntax.interval import parse_interval
from frazil.pipeline.syntax.strict import AtKey, Model, TableName, readable

SAFE_ORPHAN_AGE = timedelta(days=3)
"""Age up to which a file that no snapshot names may still be a batch's: what was staged longer ago than half of it is
refused and staged again."""


def parse_age(text: str) -> timedelta:
    """Parse a duration such as ``90m``, ``12h`` or ``7d``.

    Raises:
        ValueError: It is none, or a cron expression.
    """
    every = parse_interval(text).every
    if every is None:
        raise ValueError(f"{text!r} is no duration such as '12h' or '7d'")
    return every


def _is_schedule_or_off(schedule: str | Literal[False]) -> str | Literal[False]:
    if schedule is not False:
        parse_interval(schedule)
    return schedule


Age = Annotated[str, readable(parse_age)]
Schedule = Annotated[str, readable(parse_interval)]


class PositionDeletes(Model):
    """When small delete files are merged. Where compaction is due as well, it takes them and this step rests."""

    min_files: int = Field(20, ge=2, description="Files with positions of deleted rows that make the step due.")


class Compaction(Model):
    """When small files become large ones, and how. Small means below 75 % of the table's target size, as in Spark."""

    min_files: int = Field(5, ge=2, description="Small files of one partition that make it due.")
    min_deletes: int = Field(
        10,
        ge=1,
        description="Delete files of a table that make it due: then all data files that rows were deleted from are written"
        " anew.",
    )
    strategy: Literal["bin-pack", "sort", "z-order"] | None = Field(
        None,
        description="How rows are put together. Without: `sort` where the table has a sort order, else `bin-pack`.",
    )
    columns: tuple[str, ...] = Field((), description="Columns of `z-order`.")
    partitions: Literal["all", "closed"] = Field(
        "all",
        description="Partitions of earlier years, months, days or hours come first; `closed` leaves the present ones alone."
        " Tables that are not partitioned by time have one kind only.",
    )
    max_bytes: int = Field(20 * 2**30, gt=0, description="Bytes of a table that one run writes anew, about.")

    @model_validator(mode="after")
    def _columns_fit(self) -> Compaction:
        if bool(self.columns) != (self.strategy == "z-order"):
            raise AtKey("columns", "are needed by strategy z-order, and only by it")
        return self


class Manifests(Model):
    """When the lists of files that each scan reads are written again."""

    min_files: int = Field(20, ge=2, description="Manifests that could be merged away, which make the step due.")


class Expiry(Model):
    """Which snapshots go from the metadata, with each batch; their files are orphans then. Branches and tags keep theirs."""

    older_than: Age | None = Field(
        None,
        description="Age at which a snapshot may go; of those beyond the newest 200 one per hour stays until then. Without: what"
        " the table's property `history.expire.max-snapshot-age-ms` says, else 5d.",
    )
    keep: int | None = Field(
        None,
        ge=1,
        description="Snapshots of each branch that stay whatever their age. Without: what the table's property"
        " `history.expire.min-snapshots-to-keep` says, else 1.",
    )
    min_snapshots: int = Field(
        20, ge=1, description="Snapshots that would go, which make the step of a maintenance run due."
    )


class Orphans(Model):
    """When files go that no snapshot names: what killed runs staged, what engines have merged."""

    older_than: Age = Field(
        "7d", description="Age at which such a file may go; 3d is the least: a batch may need younger ones."
    )
    every: Age = Field("7d", description="How often they are looked for: that lists all files below the table.")

    @model_validator(mode="after")
    def _is_safe(self) -> Orphans:
        if parse_age(self.older_than) < SAFE_ORPHAN_AGE:
            raise AtKey("older_than", f"{self.older_than} is less than 3d: a batch may still need younger files")
        return self


class Stats(Model):
    """When distinct values are counted, for engines that plan joins by cost: Spark with `spark.sql.cbo.enabled`, Trino."""

    columns: tuple[str, ...] = Field(
        (), description="Columns to count. Without: all that are no structs, lists or maps."
    )
    min_change: float = Field(
        0.1,
        gt=0,
        description="Share by which the number of rows has changed since they were counted that makes the step due.",
    )


class TableMaintenance(Model):
    """The steps of one table, in their order; `false` leaves one out."""

    position_deletes: PositionDeletes | Literal[False] = Field(
        default_factory=PositionDeletes, description="Small delete files are merged."
    )
    compaction: Compaction | Literal[False] = Field(
        default_factory=Compaction, description="Small data files become large ones."
    )
    manifests: Manifests | Literal[False] = Field(default_factory=Manifests, description="Manifests are written anew.")
    expiry: Expiry | Literal[False] = Field(
        default_factory=Expiry, description="Old snapshots go; `false`: batches take none out either."
    )
    orphans: Orphans | Literal[False] = Field(default_factory=Orphans, description="Files that no snapshot names go.")
    stats: Stats | Literal[False] = Field(
        default=False,
        description="Distinct values are counted. That reads the columns of all rows, so only where it is asked for: `{}`"
        " takes the defaults.",
    )


class Maintenance(TableMaintenance):
    """The maintenance of a pipeline's tables: destinations, dead letters and ledger."""

    # One check behind the union: a check of one of its sides would stand in the path of what is wrong.
    schedule: Annotated[str | Literal[False], AfterValidator(_is_schedule_or_off)] = Field(
        "6h",
        description="How often Airflow looks whether a step is due: a duration or a cron expression, in UTC. `false`: only"
        " `frazil maintain` does.",
    )
    engine: str | None = Field(
        None,
        description="Name of an engine in the settings file. Without: the pipeline's own; where that is `inline`, `spark`.",
    )
    tables: dict[TableName, TableMaintenance | Literal[False]] = Field(
        default_factory=dict,
        description="Tables with steps of their own: a step that is named here stands instead of the pipeline's, the others"
        " stay. `false` leaves a table alone.",
    )

    def for_table(self, table: str) -> TableMaintenance | None:
        """The steps of a table; None if it is left alone."""
        table_steps = self.tables.get(table)
        if table_steps is False:
            return None
        named = (
            {} if table_steps is None else {step: getattr(table_steps, step) for step in table_steps.model_fields_set}
        )
        steps = {step: getattr(self, step) for step in TableMaintenance.model_fields}
        return TableMaintenance.model_construct(**{**steps, **named})
