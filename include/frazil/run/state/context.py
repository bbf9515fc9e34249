"""What every step of a run works with: its context, its engine, the interface of engines that write what PyIceberg can't,
the broker's facts about topics, and the keys by which rows are merged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from frazil.batch.audit import Tolerance, changed_leaders, partitions_beyond_log
from frazil.batch.facts import ClusterFacts, TopicPartition
from frazil.batch.manifest import Operation, TablePart
from frazil.batch.plan import RunPlan
from frazil.batch.position import EARLIEST, LATEST, Position, Target, resolve
from frazil.error_codes import FILE_CONTRADICTS, REPLAY_REFUSED, ROW_KEY_UNKNOWN, SPARK_UNAVAILABLE
from frazil.errors import FrazilError, Retryable, Terminal
from frazil.extras import require
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import Table, TableMetadata
from frazil.iceberg.commit.commit import Change
from frazil.iceberg.commit.expiry import Retention
from frazil.iceberg.commit.pipeline_catalog import PipelineCatalog
from frazil.iceberg.commit.summary_state import IDENTIFIER_KEY, decode_property, made_tables
from frazil.iceberg.schema.schema import identifier_columns
from frazil.kafka.admin.consumer_group import mirror_offsets
from frazil.kafka.admin.observe import matching_topics, observe, offsets_at, truncations
from frazil.kafka.admin.topics import compacted
from frazil.kafka.client.cluster import Cluster
from frazil.pipeline.models.layout import merge_problems
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, INLINE_ENGINE, AutoEngine, Destination, Pipeline
from frazil.pipeline.models.route import StartAt
from frazil.project import Project

if TYPE_CHECKING:
    from frazil.registry.client import RegistrySchemas


@dataclass(frozen=True, slots=True)
class ChosenEngine:
    """The engine of a run: `inline`, or one of the settings. The reason, for the log, is empty if there was nothing to choose."""

    name: str
    reason: str = ""

    @property
    def is_inline(self) -> bool:
        """Whether the process that runs the plan does the work."""
        return self.name == INLINE_ENGINE

    @property
    def description(self) -> str:
        """Name and reason."""
        return f"{self.name} ({self.reason})" if self.reason else self.name


def needs_writer(pipeline: Pipeline, plan: RunPlan) -> bool:
    """Whether a run needs Spark to write a table of the pipeline file, or to finish a decided batch."""
    return plan.waits or _has_engine_tables(pipeline)


def keeps_engine(pipeline: Pipeline) -> bool:
    """Whether all ticks of a session have the same engine: `auto` may choose another one at each."""
    return pipeline.engine != AUTO_ENGINE or _has_engine_tables(pipeline)


def chosen_engine(pipeline: Pipeline, auto: AutoEngine, plan: RunPlan) -> ChosenEngine:
    """Choose the engine of a run."""
    if pipeline.engine != AUTO_ENGINE:
        return ChosenEngine(pipeline.engine)
    if needs_writer(pipeline, plan):
        return ChosenEngine(auto.engine, "auto: Spark writes its tables")
    few = plan.records < auto.inline_below
    reason = f"auto: {plan.records:,} offsets, {'fewer than' if few else 'not fewer than'} {auto.inline_below:,}"
    return ChosenEngine(INLINE_ENGINE if few else auto.engine, reason)


def _has_engine_tables(pipeline: Pipeline) -> bool:
    return any(template.by_engine for template in pipeline.declared.values())


def with_merge_keys(lake: PipelineCatalog, pipeline: Pipeline) -> Pipeline:
    """The pipeline, with merge keys that its file does not name: the table's identifier fields, or else the last used key.

    An unknown key stays empty, so that a decided batch can still be finished: see `refuse_no_key`.
    """
    if not any(map(lacks_key, pipeline.destinations)):
        return pipeline
    destinations = [
        _with_key(lake, pipeline, destination) if lacks_key(destination) else destination
        for destination in pipeline.destinations
    ]
    return pipeline.model_copy(update={"destinations": tuple(destinations)})


def lacks_key(destination: Destination) -> bool:
    """Whether rows are merged and the key is not known."""
    return destination.is_merged and not destination.identifier


def key_of(destination: Destination) -> tuple[str, ...]:
    """The key of a merged destination's rows.

    Raises:
        Terminal: It is not known.
    """
    if lacks_key(destination):
        raise missing_key_error(destination, is_there=True)
    return destination.identifier


def _with_key(lake: PipelineCatalog, pipeline: Pipeline, destination: Destination) -> Destination:
    candidates = (destination.keyed(key) for key in _possible_keys(lake, pipeline, destination.table) if key)
    return next((candidate for candidate in candidates if not any(merge_problems(candidate))), destination)


def _possible_keys(lake: PipelineCatalog, pipeline: Pipeline, name: str) -> Iterator[tuple[str, ...]]:
    """Possible keys, the likeliest first. The branch does not matter: a table has one key for all of them."""
    table = lake.catalog_of(name).find_table(name)
    if table is not None:
        yield identifier_columns(table)
        # A mistyped property must not keep a decided batch from being finished: `refuse_other_key` names it afterwards.
        with suppress(Terminal):
            yield tuple(_recorded_key(pipeline, name, table.metadata) or ())


def _recorded_key(pipeline: Pipeline, table: str, metadata: TableMetadata) -> list[str] | None:
    """The key by which the pipeline merged rows last; empty if it added rows, None if it landed none."""
    property_ = IDENTIFIER_KEY.format(pipeline.name)
    text = metadata.properties.get(property_)
    return None if text is None else decode_property(text, property_, table, list[str])


def refuse_no_key(pipeline: Pipeline, name: str, table: Table | None) -> None:
    """Refuse a destination whose merge key is neither in the pipeline file nor in the table.

    Raises:
        Terminal: There is no such table, it has no identifier fields, or they can't be the key of a merge.
        Retryable: They were changed a moment ago.
    """
    destination = pipeline.destination(name)
    if not destination.is_merged or (destination.identifier and "identifier" in destination.model_fields_set):
        return
    key_columns = () if table is None else identifier_columns(table)
    if not key_columns:
        raise missing_key_error(destination, is_there=table is not None)
    keyed = destination.keyed(key_columns)
    for problem in merge_problems(keyed):
        raise ROW_KEY_UNKNOWN.terminal(
            f"table {name}: its identifier fields are {', '.join(key_columns)}, and the pipeline file contradicts them: {problem}",
            next_step="change the pipeline file, or the identifier fields of the table",
        )
    if sorted(key_columns) != sorted(destination.identifier):
        raise ROW_KEY_UNKNOWN.retryable(
            f"table {name}: its identifier fields were changed to {', '.join(key_columns)} at this moment",
            next_step="run again: the next run uses them",
        )


def missing_key_error(destination: Destination, *, is_there: bool) -> Terminal:
    """The error for a table without a merge key; `is_there` tells whether the table exists."""
    name = destination.table
    return ROW_KEY_UNKNOWN.terminal(
        f"table {name}: write: {destination.write} needs the key of its rows. The pipeline file names no identifier, and"
        + (" the table has no identifier fields" if is_there else " there is no such table yet"),
        next_step=f"name the columns under identifier, or: ALTER TABLE {name} SET IDENTIFIER FIELDS …",
    )


def identifier_property(pipeline: str, part: TablePart) -> dict[str, str]:
    """The table property with the key by which a pipeline merges rows; it is set with each commit to a destination."""
    if part.role != "destination":
        return {}
    merge = None if part.operation is None else part.operation.merge
    return {IDENTIFIER_KEY.format(pipeline): json.dumps([] if merge is None else merge.keys)}


def refuse_other_key(pipeline: Pipeline, table: str, metadata: TableMetadata) -> None:
    """Refuse a table whose rows this pipeline landed by another merge key, or by none: a key may have several rows.

    Raises:
        Terminal: It has such rows.
    """
    property_ = IDENTIFIER_KEY.format(pipeline.name)
    past_key = _recorded_key(pipeline, table, metadata) if _has_rows(metadata) else None
    if past_key is None:
        return
    current_key = pipeline.destination(table).identifier if pipeline.destination(table).is_merged else ()
    if sorted(past_key) == sorted(current_key):
        return
    past_write, declared_write = _write_description(past_key), _write_description(current_key)
    new_table_step = "give the rows a table of their own: another name under destinations"
    if not current_key:
        raise FILE_CONTRADICTS.terminal(
            f"pipeline {pipeline.name} {past_write} in table {table}, the pipeline file now says that it {declared_write}: the table"
            " would no longer have one row per key",
            next_step=f"declare write and identifier as they were, or {new_table_step}",
        )
    raise FILE_CONTRADICTS.terminal(
        f"pipeline {pipeline.name} {past_write} in table {table}, the pipeline file now says that it {declared_write}: the table"
        " may have several rows of one key, and the older ones would stay",
        next_step=f"{new_table_step}; or, if no key has two rows (GROUP BY {', '.join(current_key)} HAVING count(*) > 1), declare that: ALTER TABLE"
        f" {table} SET TBLPROPERTIES ('{property_}' = '{json.dumps(list(current_key))}')",
    )


def _write_description(key: list[str] | tuple[str, ...]) -> str:
    return f"merges rows by {', '.join(key)}" if key else "adds rows"


def _has_rows(metadata: TableMetadata) -> bool:
    head = metadata.current_snapshot()
    return head is not None and (head.summary is None or head.summary.additional_properties.get("total-records") != "0")


class Apply(Protocol):
    """An engine that writes a part's rows to a temporary branch, which then becomes main in one step."""

    def __call__(self, lake: Lake, change: Change, operation: Operation, branch: str) -> int:
        """Land a change, once, and return the id of the snapshot that carries its summary.

        The files of the change hold rows, in columns of their names. Attempts after the first get branch names of their
        own.

        Raises:
            Refused: The table contains something else than planned, or is not the one the rows were staged for.
        """


class EngineNeeded(Retryable):
    """A decided batch waits for an engine, which this process does not have. The ingest step has one, and finishes the batch first."""

    @classmethod
    def for_batch(cls, pipeline: str, n: int, table: str) -> EngineNeeded:
        """The error for one batch and table."""
        return cls(
            f"batch {n} of pipeline {pipeline} is decided; table {table} needs Spark for its part, and Spark does not run here",
            code=SPARK_UNAVAILABLE,
            next_step=f"frazil run {pipeline} (or the pipeline's next run in Airflow) finishes it first",
        )


Report = Callable[[str], None]
"""Takes one line for people who watch."""

Clock = Callable[[], datetime]
"""Tells the time, UTC."""


def utc_now() -> datetime:
    """The clock of production."""
    return datetime.now(UTC)


def no_report(_: str) -> None:
    """A report function that drops its lines."""


@dataclass(frozen=True)
class RunContext:
    """A pipeline with its catalog, its cluster, a report for people who watch, the clock, and the engine if there is one."""

    project: Project
    pipeline: Pipeline
    lake: PipelineCatalog
    cluster: Cluster
    report: Report = no_report
    clock: Clock = utc_now
    apply: Apply | None = None

    @classmethod
    def open(
        cls,
        project: Project,
        pipeline: Pipeline,
        report: Report = no_report,
        clock: Clock = utc_now,
        apply: Apply | None = None,
    ) -> RunContext:
        """Open the catalog and the cluster that the pipeline names.

        Raises:
            Terminal: The settings don't know them.
        """
        pipeline = project.with_auto_created(pipeline)
        lake, cluster = project.lake_of(pipeline), project.cluster(pipeline.source.cluster)
        return cls(project, with_merge_keys(lake, pipeline), lake, cluster, report, clock, apply)

    def with_ledger_tables(self, ledger: Table) -> RunContext:
        """A copy with the tables that this ledger lists as auto-created."""
        return self.with_created_tables(made_tables(ledger.metadata, self.pipeline.name, self.pipeline.ledger_table))

    def with_created_tables(self, table_names: Iterable[str]) -> RunContext:
        """A copy whose auto-created tables are these."""
        pipeline = self.pipeline.with_auto_created(table_names)
        if pipeline.auto_created == self.pipeline.auto_created:
            return self
        return replace(self, pipeline=pipeline, lake=self.project.lake_of(pipeline))

    @property
    def schemas(self) -> dict[str, RegistrySchemas]:
        """The Schema Registries that the pipeline names, by name: one for values, another for keys, or one for both.

        Raises:
            Terminal: The settings don't know it, or the client's libraries are not installed.
        """
        record_formats = (self.pipeline.value, self.pipeline.key)
        names = {
            record_format.registry
            for record_format in record_formats
            if record_format is not None and record_format.registry is not None
        }
        if not names:
            return {}
        require("registry", f"pipeline {self.pipeline.name}, with a Schema Registry,")
        from frazil.registry.client import shared_schemas

        return {name: shared_schemas(self.project.registry(name)) for name in sorted(names)}

    def retention(self, table: str) -> Retention | None:
        """Which old snapshots of a table its batches expire; None: none, because maintenance is off or done elsewhere."""
        rules = self.pipeline.maintenance.for_table(table)
        return None if rules is None or rules.expiry is False else Retention.from_rules(rules.expiry)

    def stamp(self) -> str:
        """The time as manifests and plans write it."""
        return self.clock().isoformat(timespec="milliseconds")


def observe_source(context: RunContext) -> ClusterFacts:
    """Facts of the topics that the pipeline reads. With a pattern, no topic has to exist.

    Raises:
        Terminal: A topic named in the file is missing, or access is refused.
    """
    source = context.pipeline.source
    if source.topics_pattern is None:
        return observe(context.cluster, source.topics)
    return observe(context.cluster, matching_topics(context.cluster, source.topics_pattern), absent_ok=True)


def vanished_topics(pipeline: Pipeline, position: Position, facts: ClusterFacts) -> tuple[str, ...]:
    """Topics that the pipeline has read and still names, but that the broker no longer has."""
    return tuple(name for name in sorted(position.topics) if name not in facts.topics and pipeline.source.reads(name))


def observe_hidden_topics(context: RunContext, position: Position, facts: ClusterFacts) -> ClusterFacts:
    """The facts, with topics added that have unread records and that the broker's topic list hides.

    The list shows only topics that the client may describe. Asked by name, the broker tells a deleted topic from a hidden one.

    Raises:
        Terminal: Access to one of them is refused.
    """
    missing = [name for name in vanished_topics(context.pipeline, position, facts) if position.topics[name].unread]
    if not missing:
        return facts
    observed = observe(context.cluster, missing, absent_ok=True)
    return replace(facts, topics={**facts.topics, **observed.topics})


def lost_ends(context: RunContext, position: Position, facts: ClusterFacts) -> dict[TopicPartition, int | None]:
    """Partitions whose log end lost records that were read -> the offset where the log was cut; None if unknown.

    Raises:
        Terminal: Access is refused.
    """
    truncated_ends = truncations(context.cluster, changed_leaders(position, facts, with_idle=True))
    return dict.fromkeys(partitions_beyond_log(position, facts)) | truncated_ends


def offsets_of(context: RunContext, target: Target, facts: ClusterFacts) -> dict[TopicPartition, int]:
    """The offsets that a target means in the topics of `facts`.

    Raises:
        Terminal: A file of offsets does not fit the topics.
    """
    at_ms = target.at_ms
    partitions = [(name, number) for name, topic in facts.topics.items() for number in range(len(topic.partitions))]
    offsets_by_time = {} if at_ms is None else offsets_at(context.cluster, partitions, at_ms)
    return resolve(target, facts, offsets_by_time)


def refuse_compacted(context: RunContext, topics: Collection[str], alternative: str = "") -> None:
    """Refuse to remove rows whose records compaction may have deleted: they could not be read again.

    `alternative` is a next step that is named first.

    Raises:
        Terminal: One of the topics is compacted, or its configuration may not be read.
    """
    compacted_topics = sorted(compacted(context.cluster, topics))
    if compacted_topics:
        subject = (
            f"topic {compacted_topics[0]} is"
            if len(compacted_topics) == 1
            else f"topics {', '.join(compacted_topics)} are"
        )
        raise REPLAY_REFUSED.terminal(
            f"pipeline {context.pipeline.name}: {subject} compacted: rows whose records compaction removed would be deleted and"
            " could not land again; nothing was changed",
            next_step=f"{alternative}to read what Kafka still has again, land it into a new table with a pipeline of its own",
        )


def tolerance_of(pipeline: Pipeline) -> Tolerance:
    """How many dead letters a batch may have, and whether one with more is refused."""
    limits, on_exceed = pipeline.dead_letters.limits, pipeline.dead_letters.on_exceed
    return Tolerance(limits.max_rate, limits.min_records, limits.max_count, fails=on_exceed == "fail")


def start_target(pipeline: Pipeline) -> Target:
    """The start of a pipeline's very first run."""
    start = pipeline.start
    if not isinstance(start, StartAt):
        return EARLIEST if start == "earliest" else LATEST
    if start.offsets is not None:
        return Target("offsets", offsets=start.offsets)
    return Target("timestamp", instant=start.timestamp)


def mirror_to_consumer_group(context: RunContext, position: Position | None) -> None:
    """Write the position into the pipeline's consumer group. It is never read back.

    A failure is only reported: the batches have landed, so active consumers or missing permissions must not fail the run.
    """
    group = context.pipeline.consumer_group
    if group is None:
        return
    try:
        topics = position.topics if position is not None else {}
        offsets = {(name, number): offset for name, topic in topics.items() for number, offset in enumerate(topic.next)}
        mirror_offsets(context.cluster, group, offsets)
    except FrazilError as error:
        context.report(f"consumer group {group} could not be moved to the position: {error.message}")
