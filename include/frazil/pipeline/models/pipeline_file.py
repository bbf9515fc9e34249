"""The pipeline file as a model: which topics to read, how to decode them, where to write, how often, and by which engine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from frazil.pipeline.models.alerts import Alerts
from frazil.pipeline.models.dead_letters import DeadLetters, DeadLetterTopic, Tolerance
from frazil.pipeline.models.destination import (
    Create,
    Destination,
    KafkaColumns,
    TableTemplate,
    refuse_shared_histories,
    with_histories,
)
from frazil.pipeline.models.layout import Changes, PartitionField, SortField, parse_partition_field
from frazil.pipeline.models.maintenance import Maintenance
from frazil.pipeline.models.route import Route, Source, Start
from frazil.pipeline.models.value import Column, Key, Value
from frazil.pipeline.syntax.interval import (
    SHORTEST_IN_SESSION,
    BatchInterval,
    Interval,
    SessionLength,
    Trigger,
    parse_duration,
    parse_interval,
    refuse_unfit_session,
)
from frazil.pipeline.syntax.strict import InvalidKey, Model, PipelineName
from frazil.pipeline.transforms import TransformStep, refuse_work_on_keys

INLINE_ENGINE = "inline"
"""Name of the engine without an entry in the settings: the process that plans the run also stages it."""

AUTO_ENGINE = "auto"
"""Name of the choice, run by run, between the inline engine for small runs and an engine of the settings for large ones."""


class AutoEngine(Model):
    """The engines between which `engine: auto` chooses, run by run."""

    engine: str = Field(
        "spark", description="Name of the engine for large runs, and for tables that only Spark writes."
    )
    inline_below: int = Field(
        2_000_000,
        ge=0,
        description="Planned records (offsets) below which a run is staged by the process that plans it, without starting"
        " Spark. `python -m tests.bench.engines` measures the number from which on Spark is faster.",
    )


def refuse_unfit_engine(engine: str, tables: Iterable[TableTemplate]) -> None:
    """Refuse the engine `inline` for tables that only Spark can write.

    Raises:
        InvalidKey: There are such tables.
    """
    if engine != INLINE_ENGINE:
        return
    templates = tuple(tables)
    if written := [template.title for template in templates if template.by_engine and not template.is_merged]:
        raise InvalidKey(
            "engine",
            f"inline can't write {', '.join(written)}, of format version 3 (which columns of type variant need) or in"
            " ORC files; name an engine of the settings, such as spark",
        )
    if merged := [template.title for template in templates if template.is_merged]:
        raise InvalidKey(
            "engine",
            f"inline can't merge rows into {', '.join(merged)}; name an engine of the settings, such as spark",
        )


class Limits(Model):
    """Bounds of one batch (a run with more records has several), of records, and of the names of new columns."""

    max_records: int = Field(5_000_000, gt=0, description="Records (offsets) of one batch.")
    max_bytes: int = Field(
        4 * 2**30,
        gt=0,
        description="Bytes of keys and values of one batch, estimated from the sizes in earlier batches.",
    )
    records_per_task: int = Field(
        2_500_000,
        gt=0,
        description="Records (offsets) of one task; more are split into several tasks, in multiples of the cores.",
    )
    max_record_bytes: int = Field(
        16 * 2**20,
        gt=0,
        le=100 * 2**20,
        description="Bytes of key, value and headers of one record. A larger one is a dead letter `RECORD_TOO_LARGE` with its"
        " coordinates and its size, and nothing of the record.",
    )
    max_partitions: int = Field(
        5_000,
        gt=0,
        description="Partition values that one task may write into a table: each one is a data file. Records with further values"
        " are dead letters `TOO_MANY_PARTITIONS`; a replay of these lands as many values again.",
    )
    max_name_length: int = Field(
        255,
        gt=0,
        le=1_000,
        description="Characters in the name of a column that records add. A field with a longer name is kept in"
        " `value.rescued_column`.",
    )


_RULES: Final = 4
"""Version of the rules for outcomes, increased whenever the same file gives some record another outcome than before."""

OUTCOME_KEYS: Final[dict[str, Any]] = {
    **dict.fromkeys(("value", "key", "transforms", "destinations", "route"), True),
    "limits": {"max_record_bytes", "max_name_length", "max_partitions"},
}
"""Parts of a pipeline file that decide the outcome of a record."""

__all__ = [
    "Changes",
    "Column",
    "DeadLetterTopic",
    "DeadLetters",
    "Destination",
    "KafkaColumns",
    "Key",
    "Limits",
    "PartitionField",
    "Pipeline",
    "SortField",
    "Tolerance",
    "Value",
    "parse_partition_field",
]


class Pipeline(Model):
    """One pipeline file."""

    name: PipelineName = Field(description="Name of the pipeline: of its DAG, its ledger and its position.")
    description: str = Field("", description="Shown in the Airflow UI.")
    owner: str = Field("frazil", description="Who is responsible for it: a team, a person, a mail address.")
    interval: BatchInterval = Field(
        "5m",
        description="Time between batches: a duration (a minute or more; with `session_for` a second or more) or a cron"
        " expression, in UTC.",
    )
    session_for: SessionLength | None = Field(
        None,
        description="How long a scheduled run lasts, such as `10m`, from `1m` to `1d`: it lands a batch at every tick of the"
        " interval. Without, a run lands the unread records and ends.",
    )
    catch_up: int | None = Field(
        None,
        gt=0,
        description="Number of unread records (offsets) after a run at which Airflow starts the next one at once. Without, the"
        " next one starts at its interval.",
    )
    trigger: Trigger | None = Field(None, description="When Airflow (3.3) starts a run before its interval is over.")
    start: Start = Field(
        "earliest",
        description="Where the first run begins: `earliest`, `latest`, `timestamp: INSTANT`, or"
        " `offsets: {topic: {partition: offset}}`. Later runs don't use it.",
    )
    source: Source
    value: Value = Field(default_factory=Value)
    key: Key | None = Field(
        None,
        description="How the key of a record is decoded, for columns with `part: key` and transforms. Without, keys are not"
        " decoded.",
    )
    transforms: tuple[TransformStep, ...] = Field(
        (), description="Transforms of records between decoding and the columns, in this order."
    )
    catalog: str = Field(
        "lake", description="Name of a catalog in the settings file, for all destinations that don't name another one."
    )
    destinations: tuple[Destination, ...] = Field(
        description="The tables to write: at least one, unless `route.create` creates them. Ledger and dead letters are in the"
        " namespace of the first one."
    )
    route: Route | None = Field(
        None, description="Which records go to which destinations. Without it every record goes to every destination."
    )
    dead_letters: DeadLetters = Field(default_factory=DeadLetters)
    limits: Limits = Field(default_factory=Limits)
    maintenance: Maintenance = Field(
        default_factory=Maintenance, description="How Airflow and `frazil maintain` maintain the tables."
    )
    alerts: Alerts | Literal[False] = Field(
        default_factory=Alerts, description="Which notices are sent about the pipeline; `false`: none."
    )
    engine: str = Field(
        "spark",
        description="Name of an engine in the settings file; `inline`: the process that plans a run, for small topics and tests;"
        " `auto`: `inline` or Spark, by the number of records that a run reads.",
    )

    _file: Pipeline | None = PrivateAttr(None)
    _parts: dict[str, Any] = PrivateAttr(default_factory=dict)
    _auto_created: tuple[str, ...] = PrivateAttr(())

    @field_validator("transforms")
    @classmethod
    def _keys_are_decoded(cls, steps: tuple[TransformStep, ...], info: ValidationInfo) -> tuple[TransformStep, ...]:
        if info.data.get("key", steps) is None:  # an invalid key is not among the data, and reported already
            refuse_work_on_keys(steps)
        return steps

    @field_validator("destinations", mode="before")
    @classmethod
    def _with_histories(cls, value: object) -> object:
        return with_histories(value)

    @model_validator(mode="after")
    def _has_namespace(self) -> Pipeline:
        if self.destinations or self._own_namespace is not None:
            return self
        if self.create is None:
            raise InvalidKey("destinations", "expected at least one, or route.create, which creates tables")
        raise InvalidKey(
            "route.create.namespace",
            "is required without destinations: it is the namespace of the ledger and the dead letters",
        )

    @model_validator(mode="after")
    def _tables_differ(self) -> Pipeline:
        refuse_shared_histories(self.destinations)
        names = [*self.tables, self.dead_letters_table, self.ledger_table]
        if len(set(names)) < len(names):
            raise ValueError(
                f"destination {', '.join(self.tables)}, dead letters {self.dead_letters_table} and"
                f" ledger {self.ledger_table} must be {len(names)} tables"
            )
        undeclared = [name for name in (self.route.tables if self.route is not None else ()) if name not in self.tables]
        for table in self.maintenance.tables:
            if table not in names and self.create is None:
                raise InvalidKey(f"maintenance.tables.{table}", f"is none of its tables: {', '.join(names)}")
        if undeclared:
            raise InvalidKey(
                "route", f"names {', '.join(undeclared)}: not among the destinations {', '.join(self.tables)}"
            )
        return self

    @model_validator(mode="after")
    def _destinations_are_reached(self) -> Pipeline:
        if self.route is not None:
            self.route.refuse_unreached(name for name in self.tables if name not in self.histories)
        return self

    @model_validator(mode="after")
    def _engine_and_schedule_fit(self) -> Pipeline:
        refuse_unfit_engine(self.engine, self.declared.values())
        has = {"catch_up": self.catch_up is not None, "trigger": self.trigger is not None}
        refuse_unfit_session(self.interval, self.session_for, **has)
        return self

    @model_validator(mode="after")
    def _reads_not_its_own_letters(self) -> Pipeline:
        self.dead_letters.refuse_as_source(self.source.reads)
        return self

    @property
    def maintenance_engine(self) -> str:
        """Name of the engine that maintains the tables."""
        return self.maintenance.engine or ("spark" if self.engine == INLINE_ENGINE else self.engine)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the destinations, in their order."""
        return tuple(destination.table for destination in self.destinations)

    @property
    def declared(self) -> dict[str, TableTemplate]:
        """The destinations and the template that the file defines, by key path."""
        listed: dict[str, TableTemplate] = {
            f"destinations.{number}": destination for number, destination in enumerate(self.file.destinations)
        }
        return listed if self.create is None else {**listed, "route.create": self.create}

    def destination(self, table: str) -> Destination:
        """The destination with that table.

        Raises:
            KeyError: There is none.
        """
        return {destination.table: destination for destination in self.destinations}[table]

    @property
    def histories(self) -> dict[str, str]:
        """History table -> the merged table that it belongs to: both get the same records."""
        return {
            destination.append_history: destination.table
            for destination in self.destinations
            if destination.append_history is not None
        }

    @property
    def create(self) -> Create | None:
        """The layout of auto-created tables; None if the pipeline creates none."""
        return self.route.create if self.route is not None else None

    @property
    def file(self) -> Pipeline:
        """The pipeline as its file defines it, without auto-created tables."""
        return self._file or self

    @property
    def parts(self) -> Mapping[str, Any]:
        """The parts of its file that decide outcomes, with references unresolved; empty if it was not read from a file."""
        return self.file._parts  # noqa: SLF001 - of this very class

    def with_parts(self, raw: Mapping[Any, Any]) -> Pipeline:
        """The pipeline with the parts of its file, given the file's keys and values."""
        pipeline = self.model_copy()
        pipeline._parts = {name: raw[name] for name in OUTCOME_KEYS if name in raw}  # noqa: SLF001 - of this very class
        return pipeline

    @property
    def auto_created(self) -> tuple[str, ...]:
        """Names of the tables that it created, sorted, including those that the file now lists or refuses."""
        return self._auto_created

    def with_auto_created(self, tables: Iterable[str]) -> Pipeline:
        """The pipeline with its auto-created tables. Those to which the file still routes records are destinations."""
        file, listed = self.file, set(self.file.tables)
        if file.route is None or file.create is None:
            return file
        names = tuple(sorted(set(tables)))
        added = [file.create.destination(table) for table in names if table not in listed and file.route.allows(table)]
        return self._with(added, names)

    def with_template(self, name: str) -> Pipeline:
        """The pipeline with one more destination, whose table does not exist yet."""
        if self.create is None:
            return self
        added = self.destinations[len(self.file.destinations) :]
        return self._with((*added, self.create.destination(name)), self.auto_created)

    def _with(self, added: Iterable[Destination], auto_created: tuple[str, ...]) -> Pipeline:
        """The pipeline with the destinations of its file, which may have keys from their tables, and these additional ones."""
        listed = self.destinations[: len(self.file.destinations)]
        pipeline = self.model_copy(update={"destinations": (*listed, *added)})
        pipeline._file, pipeline._auto_created = self.file, auto_created  # noqa: SLF001 - of this very class
        return pipeline

    @property
    def home_catalog(self) -> str:
        """Name of the catalog of ledger and dead letters: that of the first destination, unless the file names their namespace."""
        return self.catalog if self._own_namespace is not None else self.file.destinations[0].catalog or self.catalog

    @property
    def _own_namespace(self) -> str | None:
        """The namespace that the file names for ledger and dead letters."""
        return None if self.create is None else self.create.namespace

    @property
    def catalogs(self) -> tuple[str, ...]:
        """Names of the catalogs that its tables are in, that of the ledger first."""
        named = (destination.catalog or self.catalog for destination in self.destinations)
        return tuple(dict.fromkeys((self.home_catalog, *named)))

    @property
    def unique_name(self) -> str:
        """Its name among pipelines and captures."""
        return self.name

    @property
    def every(self) -> Interval:
        """`interval`, parsed."""
        return parse_interval(self.interval, SHORTEST_IN_SESSION)

    @property
    def session(self) -> timedelta | None:
        """`session_for`, parsed."""
        return None if self.session_for is None else parse_duration(self.session_for)

    @property
    def schedule(self) -> Interval:
        """When Airflow starts runs: at every interval, or after every session."""
        return self.every if self.session is None else Interval(every=self.session)

    def forgets_deletes(self, destination: TableTemplate) -> bool:
        """Whether a deleted row leaves no trace in the table, so that an older change would restore it."""
        deletes = destination.write == "cdc" or (
            destination.takes_tombstones and self.value.null_value == "delete" and self.key is not None
        )
        return destination.is_merged and deletes and destination.deletes == "hard"

    @property
    def outcome_fingerprint(self) -> str:
        """Hash of everything that decides the outcome of a record: the version of the rules, and `OUTCOME_KEYS` of the file. Batches
        with the same hash turn a record into the same outcome. The hash covers only keys that the file has, so that it stays
        the same in a newer Frazil with more keys. It has no secrets and no auto-created tables.
        """
        deciding = self.file.model_dump(mode="json", include=OUTCOME_KEYS, exclude_unset=True)
        if not deciding.get("limits"):
            deciding.pop("limits", None)
        return hashlib.sha256(json.dumps([_RULES, deciding]).encode()).hexdigest()[:12]

    @property
    def namespace(self) -> str:
        """Namespace of ledger and dead letters: the one that the file names for them, or that of the first destination."""
        return self._own_namespace or self.file.destinations[0].table.rpartition(".")[0]

    @property
    def consumer_group(self) -> str | None:
        """Name of the consumer group to which runs copy the position; None if they don't."""
        group = self.source.consumer_group
        return None if group is False else group or f"frazil-{self.name}"

    @property
    def ledger_table(self) -> str:
        """Name of the ledger."""
        return f"{self.namespace}.{self.name}__ledger"

    @property
    def dead_letters_table(self) -> str:
        """Name of the dead-letter table."""
        return self.dead_letters.table or f"{self.namespace}.{self.name}__dead_letters"
