"""Keys for table maintenance: its schedule, its steps, and their thresholds."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from frazil.pipeline.syntax.interval import parse_interval
from frazil.pipeline.syntax.strict import InvalidKey, Model, TableName, readable

SAFE_ORPHAN_AGE = timedelta(days=3)
"""Age up to which a batch may still need a file that no snapshot names: files that were staged over half of this time ago are
refused, and staged again.
"""


def parse_age(text: str) -> timedelta:
    """Parse a duration such as ``90m``, ``12h`` or ``7d``.

    Raises:
        ValueError: The text is no duration of a minute or more.
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
    """When small position-delete files are merged. If compaction is due, it removes them, and this step is skipped."""

    min_files: int = Field(20, ge=2, description="Number of position-delete files that makes the step due.")


class Compaction(Model):
    """When small data files are merged, and how. A file is small below 75 % of the table's target size, as in Spark."""

    min_files: int = Field(5, ge=2, description="Number of small files in one partition that makes the step due.")
    min_deletes: int = Field(
        10,
        ge=1,
        description="Number of delete files of a table that makes the step due: then it rewrites all data files with deleted"
        " rows.",
    )
    strategy: Literal["bin-pack", "sort", "z-order"] | None = Field(
        None,
        description="How rows are arranged. Default: `sort` if the table has a sort order, else `bin-pack`.",
    )
    columns: tuple[str, ...] = Field((), description="Columns of `z-order`.")
    partitions: Literal["all", "closed"] = Field(
        "all",
        description="Which partitions of a table that is partitioned by time are compacted. `all`: past years, months, days or"
        " hours first. `closed`: only past ones.",
    )
    max_bytes: int = Field(
        20 * 2**30, gt=0, description="Approximate number of bytes of a table that one run rewrites."
    )

    @model_validator(mode="after")
    def _columns_fit(self) -> Compaction:
        if bool(self.columns) != (self.strategy == "z-order"):
            raise InvalidKey("columns", "are needed by strategy z-order, and only by it")
        return self


class Manifests(Model):
    """When manifests, the lists of files that each scan reads, are rewritten."""

    min_files: int = Field(20, ge=2, description="Number of superfluous manifests that makes the step due.")


class Expiry(Model):
    """Which snapshots each batch removes from the metadata, so that their files are orphans. Those of branches and tags stay."""

    older_than: Age | None = Field(
        None,
        description="Age at which a snapshot may be removed; beyond the newest 200, one per hour stays until then. Default:"
        " the table's property `history.expire.max-snapshot-age-ms`, else 5d.",
    )
    keep: int | None = Field(
        None,
        ge=1,
        description="Number of snapshots of each branch that stay at any age. Default: the table's property"
        " `history.expire.min-snapshots-to-keep`, else 1.",
    )
    min_snapshots: int = Field(
        20, ge=1, description="Number of removable snapshots that makes the step of a maintenance run due."
    )


class Orphans(Model):
    """When files that no snapshot names are deleted: staged by killed runs, or replaced by a compaction."""

    older_than: Age = Field(
        "7d", description="Age at which such a file may be deleted; at least 3d, because a batch may need younger ones."
    )
    every: Age = Field("7d", description="Time between two searches, each of which lists all files below the table.")

    @model_validator(mode="after")
    def _is_safe(self) -> Orphans:
        if parse_age(self.older_than) < SAFE_ORPHAN_AGE:
            raise InvalidKey("older_than", f"{self.older_than} is less than 3d: a batch may still need younger files")
        return self


class Stats(Model):
    """When distinct values are counted, for engines that plan joins by cost: Spark with `spark.sql.cbo.enabled`, Trino."""

    columns: tuple[str, ...] = Field(
        (), description="Columns whose values are counted. Default: all but structs, lists and maps."
    )
    min_change: float = Field(
        0.1,
        gt=0,
        description="Relative change of the number of rows since the last count that makes the step due.",
    )


class TableMaintenance(Model):
    """The steps of one table, in their order; `false` turns one off."""

    position_deletes: PositionDeletes | Literal[False] = Field(
        default_factory=PositionDeletes, description="Merges small position-delete files."
    )
    compaction: Compaction | Literal[False] = Field(default_factory=Compaction, description="Merges small data files.")
    manifests: Manifests | Literal[False] = Field(default_factory=Manifests, description="Rewrites manifests.")
    expiry: Expiry | Literal[False] = Field(
        default_factory=Expiry, description="Removes old snapshots; with `false`, batches remove none either."
    )
    orphans: Orphans | Literal[False] = Field(
        default_factory=Orphans, description="Deletes files that no snapshot names."
    )
    stats: Stats | Literal[False] = Field(
        default=False,
        description="Counts distinct values, which reads the columns of all rows, so it is off by default: `{}` turns it on"
        " with its defaults.",
    )


class Maintenance(TableMaintenance):
    """The maintenance of a pipeline's tables: destinations, dead letters and ledger."""

    # One validator for the whole union: that of a branch would add the branch's name to the key path of an error.
    schedule: Annotated[str | Literal[False], AfterValidator(_is_schedule_or_off)] = Field(
        "6h",
        description="How often Airflow checks whether a step is due: a duration or a cron expression, in UTC. `false`: only"
        " `frazil maintain` does.",
    )
    engine: str | None = Field(
        None,
        description="Name of an engine in the settings file. Default: the pipeline's engine, or `spark` if that is `inline`.",
    )
    tables: dict[TableName, TableMaintenance | Literal[False]] = Field(
        default_factory=dict,
        description="Table -> steps of its own, each in place of the pipeline's step of that name. `false`: the table is not"
        " maintained.",
    )

    def for_table(self, table: str) -> TableMaintenance | None:
        """The steps of a table; None if it is not maintained."""
        table_steps = self.tables.get(table)
        if table_steps is False:
            return None
        named = () if table_steps is None else table_steps.model_fields_set
        steps = {step: table_steps if step in named else self for step in TableMaintenance.model_fields}
        return TableMaintenance.model_construct(**{step: getattr(source, step) for step, source in steps.items()})
