"""Proposes a pipeline file for a topic.

A sample of its records is decoded as by a batch whose tables do not exist yet: so the file has the columns that this batch would
create. Nothing is landed, and no catalog is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import yaml
from pydantic import ValidationError

from frazil.batch.facts import Counts, Range, Staged, TopicFacts
from frazil.batch.schema_change import Demands
from frazil.error_codes import BAD_ARGUMENT, BAD_SETTING
from frazil.errors import Terminal
from frazil.extras import require
from frazil.iceberg.schema.schema import declared_columns
from frazil.kafka.admin.observe import observe
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.read.read import read_ranges
from frazil.pipeline.channels import visible
from frazil.pipeline.models.pipeline_file import AUTO_ENGINE, INLINE_ENGINE, Pipeline, Value
from frazil.project import Project
from frazil.records.evolution.types import type_from_evidence, write_type
from frazil.records.formats.catalogue import FORMATS
from frazil.records.formats.framing import HEADERS
from frazil.records.formats.guess import REGISTERED, Guess, guess, likeliest, schema_id
from frazil.records.json.exact import parse_object
from frazil.records.model.rows import last_header
from frazil.records.model.spec import RecordSpec
from frazil.run.commit.audit import stage_order
from frazil.run.staging.stage import Refusals, stage_records
from frazil.run.state.context import RunContext
from frazil.run.state.evolution import columns_for

_SAMPLE_BYTES: Final = 64 * 2**20
"""Bytes of keys and values after which no more of the sample is read."""

_LANGUAGES: Final[Mapping[str, str]] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json-schema"}
"""Kind of schema in a registry -> the format of its records."""

_EVOLVING: Final = frozenset({"json", "json-envelope", *_LANGUAGES.values()})
"""Formats whose later records may bring further fields."""

_CLOUD_EVENT: Final = re.compile(r"ce_[a-z0-9_]{1,97}")
"""Headers of CloudEvents in Kafka's binary mode: each holds an attribute of the event."""

_MOST_HEADERS: Final = 50
_KEY_COLUMN: Final = "record_key"
"""Column for keys that are one value alone."""

_COMMENT_LENGTH: Final = 1_000
"""Characters of a line of comments."""

_MIXED: Final = (
    "Some field holds values of several types, which land as text: is each column of type string meant to be one?"
)

File = dict[str, Any]
"""A pipeline file, as YAML has it."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A pipeline file with comments, and the outcome of the sample under it. The file has names of fields and no values."""

    text: str
    counts: Counts
    dead_codes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A file, the columns that its table would have for the sample, and the outcome of the sample."""

    file: File
    columns: Mapping[str, pa.DataType]
    staged: Staged

    @property
    def dead(self) -> int:
        return self.staged.total.dead


class _Keys(NamedTuple):
    """How keys are decoded, and the types of their fields. A single key is one value, in a field that is called `value`."""

    decoding: Mapping[str, Any]
    fields: Mapping[str, pa.DataType]
    is_single: bool = False


def _file(base: File, value: Mapping[str, Any], **table: Any) -> File:
    """A pipeline file with a value format and options of its table; empty options are left out."""
    (destination,) = base["destinations"]
    own = {key: part for key, part in table.items() if part}
    head = {key: part for key, part in base.items() if key not in ("catalog", "destinations")}
    return {**head, "value": {**value}, "catalog": base["catalog"], "destinations": [{**destination, **own}]}


def propose(project: Project, base: File, records: int) -> Proposal:
    """Read some records of a topic, the first and the last ones, and complete a pipeline file that names topic and table.

    Raises:
        Terminal: The topic does not exist or holds nothing, or a Schema Registry is needed that the settings don't know.
        Retryable: No broker or registry answers.
    """
    (topic,) = base["source"]["topics"]
    cluster = project.cluster(base["source"]["cluster"])
    facts = observe(cluster, [topic]).topics[topic]
    batches = sample(cluster, topic, facts, records)
    values = likeliest(_guesses(batches, "value"))
    if values is None:
        raise BAD_ARGUMENT.terminal(
            f"{cluster}, topic {topic}: found no record with a value",
            next_step=f"run this again when the topic has one; `frazil peek {topic}` shows its records",
        )
    decoding = _decoding(project, values, batches, "value")
    engine = AUTO_ENGINE if project.settings.auto.engine in project.settings.engines else _spark_engine(project)
    base = {**base, "engine": engine or INLINE_ENGINE}
    keys = _keys(project, base, batches)
    best = _best(project, base, batches, decoding, keys)
    offsets = sum(partition.stable_end - partition.log_start for partition in facts.partitions)
    total, letters = best.staged.total, sorted(best.staged.dead_codes.items())
    codes = "".join(f", {code} {count:,}" for code, count in letters)
    lines = [
        f"Proposed by `frazil new` after a look at {total.read:,} records; topic {topic} has {offsets:,} offsets.",
        f"They would be {total.written:,} rows, {total.dead:,} dead letters{codes}; {total.filtered:,} left out.",
        f"Keys: {_keys_line(keys, best)}.",
        *([_MIXED] if "casts" in best.file["value"] else []),
    ]
    text = "".join(f"# {_one_line(line)}\n" for line in lines)
    written = yaml.safe_dump(best.file, sort_keys=False, allow_unicode=True, width=118)
    return Proposal(text + written, total, best.staged.dead_codes)


def _one_line(text: str) -> str:
    """A comment of bounded length on one line, whatever names a producer has in it."""
    shown = visible(text)
    return shown if len(shown) <= _COMMENT_LENGTH else f"{shown[:_COMMENT_LENGTH]}…"


def sample(cluster: Cluster, topic: str, facts: TopicFacts, records: int) -> list[pa.RecordBatch]:
    """Read about so many records: the first and the last ones of each partition, since producers change over time."""
    share = max(1, records // (2 * len(facts.partitions)))
    ranges = []
    for number, log in enumerate(facts.partitions):
        middle = min(log.log_start + share, log.stable_end)
        ranges.append(Range(topic, number, log.log_start, middle))
        ranges.append(Range(topic, number, max(middle, log.stable_end - share), log.stable_end))
    batches, size = [], 0
    for batch in read_ranges(cluster, ranges):
        batches.append(batch)
        size += batch.nbytes
        if size >= _SAMPLE_BYTES:
            break
    return batches


def _guesses(batches: Iterable[pa.RecordBatch], part: str) -> Iterator[Guess]:
    for batch in batches:
        rows, heads = last_header(batch["headers"], HEADERS[part])
        with_head = zip(rows.to_pylist(), heads.to_pylist(), strict=True)
        registered = {row for row, head in with_head if head and schema_id(head) is not None}
        for row, data in enumerate(batch[part].to_pylist()):
            yield Guess(REGISTERED) if row in registered and data is not None else guess(data)


def _decoding(project: Project, shape: Guess, batches: Sequence[pa.RecordBatch], part: str) -> dict[str, Any]:
    """The decoding of values or keys, as a pipeline file declares it."""
    if shape.format == REGISTERED:
        return _registered(project, batches, part)
    if shape.format != "delimited":
        return {"format": shape.format}
    fields = [f"field_{number}" for number in range(1, shape.fields + 1)]
    return {"format": "delimited", "fields": fields, "delimiter": shape.delimiter}


def _registered(project: Project, batches: Sequence[pa.RecordBatch], part: str) -> dict[str, Any]:
    """The registry that knows the commonest schema, and the format of its language."""
    in_headers = (data for batch in batches for data in last_header(batch["headers"], HEADERS[part])[1].to_pylist())
    framed = (*in_headers, *(data for batch in batches for data in batch[part].to_pylist()))
    numbers = Counter(number for data in framed if data and (number := schema_id(data)) is not None)
    number = numbers.most_common(1)[0][0]
    names = sorted(name for name, one in project.settings.registries.items() if one.framing == "confluent")
    if names:
        require("registry", f"a topic with schema {number}")
    for name in names:
        from frazil.registry.client import shared_schemas

        if (schema := shared_schemas(project.registry(name)).schema(number)) is not None:
            return {"format": _LANGUAGES[schema.kind], "registry": name}
    raise BAD_SETTING.terminal(
        f"{part}s are written with schema {number} of a Schema Registry, and "
        + (f"{', '.join(names)} of the settings have no such schema" if names else "the settings know no registry"),
        next_step=f"name it in {project.settings_file}: registries: {{main: {{url: https://registry.example.org}}}}",
    )


def _with_keys_as_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Records with their keys in place of values, so that columns are inferred for keys. Headers are left out: they describe values."""
    filled = batch.filter(batch["key"].is_valid())
    parts = {"value": filled["key"], "headers": pa.nulls(len(filled), filled["headers"].type)}
    columns = [parts.get(name, filled[name]) for name in filled.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=filled.schema)


def _keys(project: Project, base: File, batches: Sequence[pa.RecordBatch]) -> _Keys | None:
    """How keys are decoded; None if there are no keys, or no one way decodes all of them."""
    shape = likeliest(_guesses(batches, "key"))
    if shape is None:
        return None
    try:
        decoding = _decoding(project, Guess("string") if shape.format == "delimited" else shape, batches, "key")
    except Terminal:  # numbers may look like the id of a schema: the file is proposed without keys
        return None
    attempt = _attempt(project, _file(base, decoding), [_with_keys_as_values(batch) for batch in batches])
    if attempt.dead or not attempt.columns:
        return None
    is_single = decoding["format"] in FORMATS["string"].names
    if is_single and (field := _field_of_keys(batches)) is not None:
        return _Keys({}, {field: attempt.columns["value"]})
    return _Keys(decoding, attempt.columns, is_single)


def _field_of_keys(batches: Iterable[pa.RecordBatch]) -> str | None:
    """The field of JSON values that repeats the text of their keys, in all records that have both."""
    names: set[str] | None = None
    pairs = (
        pair for batch in batches for pair in zip(*batch.select(["key", "value"]).to_pydict().values(), strict=True)
    )
    for key, value in pairs:
        if key is None or guess(value).format != "json":
            continue
        text = key.decode(errors="replace")
        repeating = {name for name, part in parse_object(value).items() if isinstance(part, str) and part == text}
        names = repeating if names is None else names & repeating
        if not names:
            return None
    return min(names) if names else None


def _headers(batches: Iterable[pa.RecordBatch]) -> list[str]:
    names = {
        header["key"]
        for batch in batches
        for headers in batch["headers"].to_pylist()
        for header in headers or ()
        if _CLOUD_EVENT.fullmatch(header["key"])
    }
    return sorted(names)[:_MOST_HEADERS]


def _best(
    project: Project, base: File, batches: Sequence[pa.RecordBatch], decoding: Mapping[str, Any], keys: _Keys | None
) -> _Attempt:
    """The file under which fewest records of the sample are dead letters. Of equal ones the first, which declares most."""

    def attempt(file: File) -> _Attempt:
        return _attempt(project, file, batches)

    evolve = "widen" if decoding["format"] in _EVOLVING else None
    from_headers: dict[str, Any] = {name: {"type": "string", "part": "header"} for name in _headers(batches)}
    first = attempt(_file(base, decoding, evolve=evolve, columns=from_headers))
    if keys is not None and _are_change_events(first.columns) and not keys.is_single:
        with suppress(ValidationError, Terminal):  # rows can't be told apart by such keys
            changed = _with_changes(attempt, base, decoding, keys, _spark_engine(project))
            if changed.dead <= first.dead:
                return changed
    key, from_key = _key_columns(keys, first.columns)
    base, columns = {**base, **key}, _declared(first.columns) | from_headers | from_key
    files = [_file(base, decoding, evolve=evolve, columns=columns)]
    if evolve is not None:
        files.append(_file(base, {**decoding, "casts": "text"}, evolve=evolve, columns=columns))
        files.append(_file(base, decoding, evolve=evolve, columns=from_headers | from_key))
    return min(map(attempt, files), key=lambda candidate: candidate.dead)


def _spark_engine(project: Project) -> str | None:
    """An engine that merges rows into tables; None if the settings have none."""
    settings = project.settings
    return settings.auto.engine if settings.auto.engine in settings.engines else next(iter(settings.engines), None)


def _are_change_events(columns: Mapping[str, Any]) -> bool:
    """Whether values are Debezium's change events."""
    return {"op", "source"} <= columns.keys() and bool({"before", "after"} & columns.keys())


def _with_changes(
    attempt: Callable[[File], _Attempt], base: File, decoding: Mapping[str, Any], keys: _Keys, engine: str | None
) -> _Attempt:
    """A table with one row per key; without an engine that merges rows, one with a row per change."""
    identifier: dict[str, Any] = {
        name: {"type": text, "required": True} for name, text in _declared(keys.fields).items()
    }
    changes = {"changes": {"format": "debezium"}, "identifier": [*identifier]}
    merging = {**base, "engine": engine or "spark"}  # nothing is started: only its name is looked at
    merged = attempt(_file(merging, decoding, write="cdc", **changes, evolve="widen", columns=identifier))
    columns = identifier | {name: text for name, text in _declared(merged.columns).items() if name not in identifier}
    if engine is None:
        return attempt(_file(base, decoding, write="history", **changes, columns=columns))
    declared = attempt(_file(merging, decoding, write="cdc", **changes, evolve="widen", columns=columns))
    return declared if declared.dead <= merged.dead else merged


def _key_columns(keys: _Keys | None, columns: Mapping[str, Any]) -> tuple[File, dict[str, Any]]:
    """The decoding of keys, and columns for the key fields that the values don't have."""
    if keys is None or not keys.decoding:
        return {}, {}
    if _KEY_COLUMN in columns if keys.is_single else keys.fields.keys() <= {*columns}:
        return {}, {}
    fields = _declared(keys.fields)
    if keys.is_single:
        return {"key": keys.decoding}, {_KEY_COLUMN: {"type": fields["value"], "part": "key", "from": "value"}}
    typed = {"fields": fields} if keys.decoding["format"] == "json" else {}
    missing = {name: {"type": text, "part": "key"} for name, text in fields.items() if name not in columns}
    return {"key": {**keys.decoding, **typed}}, missing


def _declared(columns: Mapping[str, pa.DataType]) -> dict[str, str]:
    """Columns as a file declares them. Left out: those that the file would read as a reference (`${`), and the rescued column."""
    written = {name: write_type(type_from_evidence(column)) for name, column in columns.items()}
    return {name: text for name, text in written.items() if "${" not in name + text and name != Value().rescued_column}


def _attempt(project: Project, file: File, batches: Sequence[pa.RecordBatch]) -> _Attempt:
    """Decode records under a file, as a batch would if its tables did not exist yet."""
    pipeline = Pipeline.model_validate(file)
    cluster = project.cluster(pipeline.source.cluster)
    context = RunContext(project, pipeline, project.lake_of(pipeline), cluster)  # no catalog is opened
    destination = pipeline.destinations[0]

    def find_demands(columns: Mapping[str, pa.Schema]) -> tuple[Demands, Mapping[str, RecordSpec]]:
        order = stage_order(context, 0, (), columns, Refusals())
        return stage_records(order, batches).demands, order.specs

    columns = columns_for({destination.table: declared_columns(destination)}, find_demands)
    staged = stage_records(stage_order(context, 0, (), columns, Refusals()), batches)
    parts = {name: column.part for name, column in destination.columns.items()}
    value_columns = {
        column.name: column.type for column in columns[destination.table] if parts.get(column.name, "value") == "value"
    }
    return _Attempt(file, value_columns, staged)


def _keys_line(keys: _Keys | None, best: _Attempt) -> str:
    if keys is None:
        return "records have no keys, or keys of several kinds"
    names = ", ".join(_declared(keys.fields))
    if "identifier" in best.file["destinations"][0]:
        return f"{names} identify a row"
    if "key" in best.file:
        return "in columns with part: key"
    if not keys.decoding:
        return f"{names}, which values repeat"
    if not names:
        return "not landed, their fields have names that no column takes"
    return f"not landed, values have fields of these names: {_KEY_COLUMN if keys.is_single else names}. If they differ, add columns with part: key"
