"""What a person fills in to bring dead letters home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from frazil.errors import Terminal
from frazil.pipeline.models.pipeline_file import Pipeline

if TYPE_CHECKING:
    from frazil.batch.dead_letters import LetterChoice

CODES, TOPICS, SINCE, UNTIL = "codes", "topics", "since", "until"
REASON, DRY_RUN = "reason", "dry_run"

ALL_CODES = (
    "RECORD_TOO_LARGE",
    "UNREADABLE_BATCH",
    "INVALID_HEADERS",
    "NULL_VALUE",
    "EMPTY_VALUE",
    "INVALID_UTF8",
    "INVALID_JSON",
    "NOT_AN_OBJECT",
    "TOO_DEEP",
    "TOO_MANY_NAMES",
    "TOO_WIDE",
    "DUPLICATE_KEY",
    "INVALID_WIRE",
    "UNKNOWN_SCHEMA",
    "SCHEMA_NOT_ASKED_FOR",
    "UNUSABLE_SCHEMA",
    "INVALID_AVRO",
    "INVALID_PROTOBUF",
    "SCHEMA_VIOLATION",
    "INVALID_ENVELOPE",
    "INVALID_DELIMITED",
    "INVALID_SCALAR",
    "INVALID_KEY",
    "TRANSFORM_FAILED",
    "UNROUTED",
    "TABLE_NOT_MADE",
    "UNKNOWN_FIELD",
    "NOT_FINITE",
    "LONE_SURROGATE",
    "WRONG_TYPE",
    "OUT_OF_RANGE",
    "LOSSY_CAST",
    "INVALID_TIME",
    "INVALID_TEXT",
    "MISSING_REQUIRED",
    "TOO_MANY_PARTITIONS",
    "PARTITION_TOO_LONG",
)
"""As in `frazil.records.model.dead_letter`, which loads more than a DAG file may."""

_INSTANT = r"^(\s*|\s*\d{1,6}[smhd]\s*|\s*\d{4}-\d{2}-\d{2}([T ]\S+)?\s*)$"
"""An instant, or how long ago, as far as a pattern can tell: the rest is checked before anything is done."""

_INSTANTS = (
    "an instant such as 2026-05-01T10:00:00+00:00 (UTC if it names no offset), or how long ago it was: 90m, 24h, 7d"
)


def params(pipeline: Pipeline) -> dict[str, Param]:
    """Return the fields of the form."""
    return {
        CODES: Param(
            [],
            type="array",
            items={"type": "string", "enum": list(ALL_CODES)},
            examples=list(ALL_CODES),
            title="Codes",
            description="Only letters of these reason codes. Empty: of all.",
        ),
        TOPICS: Param(
            [],
            type="array",
            items={"type": "string"},
            title="Topics",
            description="Only letters of these topics. Empty: of all.",
            **_known_topics(pipeline),
        ),
        SINCE: _instant("Since", f"Only records of this Kafka timestamp or later: {_INSTANTS}. Empty: of any time."),
        UNTIL: _instant("Until", "Only records of before this Kafka timestamp, written alike."),
        REASON: Param(
            type="string",
            minLength=1,
            maxLength=500,
            pattern=r"\S",
            title="Reason",
            description="What was mended, for whoever reads the ledger later: frazil history shows it.",
        ),
        DRY_RUN: Param(
            default=False,
            type="boolean",
            title="Dry run",
            description="Only look what would become of them; nothing is landed.",
        ),
    }


def choice_of(filled_in: Mapping[str, Any], pipeline: Pipeline, topics: Sequence[str], now: datetime) -> LetterChoice:
    """Return the letters that are chosen.

    Args:
        filled_in: The form.
        pipeline: The pipeline.
        topics: Further topics that it has read, though its file names them no more.
        now: The time, UTC.

    Raises:
        Terminal: A value can't be what was meant.
    """
    from frazil.batch.dead_letters import LetterChoice

    since, until = (_read(filled_in[field], field, now) for field in (SINCE, UNTIL))
    if since is not None and until is not None and since >= until:
        raise Terminal(
            f"the fields {SINCE!r} and {UNTIL!r} leave no time between them: {since.isoformat()} to {until.isoformat()}",
            next_step=f"{SINCE!r} is the earlier one",
        )
    for topic in filled_in[TOPICS]:
        if not pipeline.source.reads(topic) and topic not in topics:
            topic_names = sorted({*pipeline.source.topics, *topics})
            raise Terminal(
                f"the field {TOPICS!r}: pipeline {pipeline.name} never read topic {topic!r}",
                next_step=f"its topics: {', '.join(topic_names) or 'none yet'}",
            )
    return LetterChoice(frozenset(filled_in[CODES]), frozenset(filled_in[TOPICS]), since, until=until)


def _known_topics(pipeline: Pipeline) -> dict[str, Any]:
    """Topics to choose from; nothing, so that any can be written, where a pattern chooses what is read."""
    return {} if pipeline.source.topics_pattern is not None else {"examples": sorted(pipeline.source.topics)}


def _instant(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], pattern=_INSTANT, title=title, description=description)


def _read(text: str | None, field: str, now: datetime) -> datetime | None:
    from frazil.batch.target import parse_instant

    if not text or not text.strip():
        return None
    try:
        return parse_instant(text, now.astimezone(UTC))
    except (ValueError, Terminal) as error:
        raise Terminal(f"the field {field!r}: {error}", next_step=f"expected {_INSTANTS}") from error
