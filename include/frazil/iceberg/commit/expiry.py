"""Snapshot expiry: recent snapshots stay one by one, older ones one per hour, none beyond the age of expiry. The state of a
pipeline never expires.

Metadata list every snapshot, and each plan and commit reads and writes all of them: without a bound, batches would cost more
with the table's age. So each commit of a batch expires old snapshots, and the last one of each hour gets a tag, which
readers can name. Expiry changes only metadata. Files stay until orphan removal, so that a catalog that is restored from a backup
opens tables whose files still exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, islice, pairwise
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)

from frazil.error_codes import BAD_TABLE_PROPERTY
from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.table import HOURLY_TAG, BranchName, head_of, on_branch, send
from frazil.iceberg.commit.summary_state import (
    BATCH_KEY,
    BRANCH_KEY,
    DONE_KEY,
    MADE_KEY,
    MANIFEST_KEY,
    POSITION_KEY,
    TABLES_KEY,
    TOPICS_KEY,
    RolledBack,
    mirror,
    mirrored_property,
    read_summary,
    summary_of,
)
from frazil.iceberg.errors import translated
from frazil.iceberg.patches.metadata import FORMAT_VERSION
from frazil.pipeline.models.maintenance import Expiry, parse_age

MARKS: Final = {BATCH_KEY: (POSITION_KEY, MADE_KEY, TOPICS_KEY), DONE_KEY: (TABLES_KEY,)}
"""Marks that are kept in summaries of snapshots and mirrored in properties -> further properties that move with each."""

_KINDS: Final = {kind: kind.format("") for kind in MARKS}
_PREFIXES: Final = tuple(_KINDS.values())
_BRANCH: Final = BRANCH_KEY.format("")


@dataclass(frozen=True)
class RetainedState:
    """The state in a table of all pipelines that ever wrote to it.

    Attributes:
        hold_ms: Snapshots of this time or later must stay, as they alone carry a value; None if properties carry all.
        refusal: Why no snapshot may expire: a pipeline's state in the table can't be read; None if all can.
    """

    values: dict[str, str]
    hold_ms: int | None
    refusal: str | None


def retained_state(metadata: TableMetadata, table: str) -> RetainedState:
    """Read the state of pipelines in a table, on main and on branches."""
    values: dict[str, str] = {}
    held_since: list[int] = []
    for kind, pipeline in sorted(_all_marks(metadata)):
        key = kind.format(pipeline)
        branch_view = on_branch(metadata, metadata.properties.get(f"{_BRANCH}{pipeline}", "main"))
        mark = read_summary(branch_view, key, table)
        if isinstance(mark, RolledBack):
            return RetainedState(
                {}, None, f"{key}: main does not descend from snapshot {mark.snapshot_id}, which brought it last"
            )
        if mark is None:
            continue
        values[key] = mark.value
        attached = [
            name for attached_key in MARKS[kind] if (name := attached_key.format(pipeline)) in metadata.properties
        ]
        moved = {name: mirrored_property(metadata, name, table) for name in attached}
        values |= {name: value for name, (value, _) in moved.items()}
        # Where Spark writes, the property may lag behind the snapshot.
        is_mirrored = metadata.properties.get(key) == mirror(mark.value, mark.snapshot_id)
        moves_with_mark = all(mover == mark.snapshot_id for _, mover in moved.values())
        position_key = POSITION_KEY.format(pipeline)
        has_position = position_key in metadata.properties or position_key not in mark.summary
        carrier = metadata.snapshot_by_id(mark.snapshot_id)
        if carrier is not None and not (is_mirrored and moves_with_mark and has_position):
            held_since.append(carrier.timestamp_ms)
    return RetainedState(values, min(held_since, default=None), None)


def named_manifests(metadata: TableMetadata) -> frozenset[str]:
    """Paths of the batch manifests that snapshots name: a lost ledger is rewritten from them."""
    summaries = map(summary_of, metadata.snapshots)
    return frozenset(path for summary in summaries if (path := summary.get(MANIFEST_KEY)) is not None)


def _all_marks(metadata: TableMetadata) -> set[tuple[str, str]]:
    """Kind and pipeline of the marks that properties or snapshots carry."""
    keys = chain(metadata.properties, *map(summary_of, metadata.snapshots))
    marks = [key for key in keys if key.startswith(_PREFIXES)]
    return {
        (kind, key.removeprefix(prefix)) for key in marks for kind, prefix in _KINDS.items() if key.startswith(prefix)
    }


RECENT: Final = 200
"""Newest snapshots of main that stay until they reach the age of expiry: more than three hours of a batch a minute. Compactions,
branches and incremental readers start from a snapshot and need all later ones. Each costs a batch 0.1 ms."""

MOST_REMOVED: Final = 100
"""Most snapshots that one batch expires, so that the first batches on an old table are little slower than others."""

MOST_AGED: Final = 2
"""Most recent snapshots, and most hourly tags, that one batch expires by age: one for the snapshot that it adds, one to catch up.
A host whose clock is days ahead makes all snapshots look old: without this bound its second batch would expire them all."""

HOLD_KEY: Final = "frazil.snapshots-held"
"""Table property: holds `since/end` of running rewrites, separated by blanks, in milliseconds since 1970. Until the end of a hold,
snapshots of its `since` or later stay."""

HOLD: Final = timedelta(hours=3)
"""How long a rewrite holds snapshots at most. With a batch a second, 10,000 snapshots are held then."""

NO_HOLD: Final = "0/0"
_DIGITS: Final = 19
"""Digits of the largest long number in Java."""

_AGE: Final = "history.expire.max-snapshot-age-ms"
_KEEP: Final = "history.expire.min-snapshots-to-keep"
_DEFAULT_AGE_MS: Final = 5 * 86_400_000
_LONGEST_MS: Final = 1_000 * 365 * 86_400_000
"""Stands for ever, in milliseconds: a table may have 2^63 - 1, which no timedelta holds."""
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a table's history to keep. Unset values come from the table's properties.

    Attributes:
        age: Age from which snapshots expire.
        keep: How many snapshots of each branch stay, whatever their age.
    """

    age: timedelta | None = None
    keep: int | None = None

    @classmethod
    def from_rules(cls, rules: Expiry) -> Retention:
        """The retention of a table in the pipeline file."""
        return cls(None if rules.older_than is None else parse_age(rules.older_than), rules.keep)

    def age_in(self, properties: Mapping[str, str]) -> timedelta:
        """The age from which snapshots expire: this retention's, else the table's, else five days."""
        return self.age or timedelta(milliseconds=min(number_property(properties, _AGE, _DEFAULT_AGE_MS), _LONGEST_MS))

    def keep_in(self, properties: Mapping[str, str]) -> int:
        """The number of snapshots to keep: this retention's, else the table's, else 1."""
        return self.keep if self.keep is not None else number_property(properties, _KEEP, 1)


def number_property(properties: Mapping[str, str], key: str, default: int, table: str | None = None) -> int:
    """The number in a table property. With `table`, the error names the table.

    Raises:
        Terminal: It is no number.
    """
    text = properties.get(key, str(default))
    if not (text.isdecimal() and len(text) <= _DIGITS):
        raise _unreadable(key, text, "a number", table)
    return int(text)


def _unreadable(key: str, text: str, expected: str, table: str | None = None) -> Terminal:
    subject = "table property" if table is None else f"table {table}: property"
    return BAD_TABLE_PROPERTY.terminal(
        f"{subject} {key} is {text[:100]!r}, expected {expected}",
        next_step="unset it; it was probably edited by hand"
        if table is None
        else "correct it, also in the pipeline file if that sets it; or unset it",
    )


def rewrite_hold(metadata: TableMetadata, now_ms: int) -> str:
    """The hold of a rewrite that begins: its commit checks all snapshots since the head that it read."""
    head = metadata.current_snapshot()
    since = metadata.last_updated_ms if head is None else head.timestamp_ms
    return f"{since}/{max(now_ms, metadata.last_updated_ms) + _ms(HOLD)}"


def with_hold(properties: Mapping[str, str], hold: str, now_ms: int) -> str:
    """The value of HOLD_KEY when a rewrite begins: other holds stay until their end."""
    return " ".join([*(f"{since}/{end}" for since, end in _live_holds(properties, now_ms)), hold])


def without_hold(properties: Mapping[str, str], hold: str) -> str:
    """The value of HOLD_KEY when a rewrite has ended: only its own hold is removed."""
    holds = properties.get(HOLD_KEY, NO_HOLD).split(" ")
    if hold in holds:
        holds.remove(hold)
    return " ".join(holds) or NO_HOLD


def _live_holds(properties: Mapping[str, str], now_ms: int) -> list[tuple[int, int]]:
    text = properties.get(HOLD_KEY, NO_HOLD)
    matches = [re.fullmatch(rf"(\d{{1,{_DIGITS}}})/(\d{{1,{_DIGITS}}})", hold) for hold in text.split(" ")]
    holds = [(int(hold[1]), int(hold[2])) for hold in matches if hold is not None]
    if len(holds) < len(matches):
        raise _unreadable(HOLD_KEY, text, NO_HOLD)
    return [(since, end) for since, end in holds if now_ms < end]


@dataclass(frozen=True, slots=True)
class SnapshotAge:
    """A snapshot: its time, and its parent."""

    id: int
    made_ms: int
    parent: int | None


@dataclass(frozen=True, slots=True)
class BranchRules:
    """A branch: its head snapshot, and its own retention settings, if it has any."""

    head: int
    keep: int | None = None
    max_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag: its snapshot, and the age at which the tag expires, if it has one."""

    head: int
    max_age_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class History:
    """The snapshots that a table lists, its branches and tags, its properties and its format version."""

    snapshots: Sequence[SnapshotAge] = ()
    branches: Mapping[str, BranchRules] = field(default_factory=dict)
    tags: Mapping[str, Tag] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    format_version: int = 2

    @classmethod
    def from_metadata(cls, metadata: TableMetadata) -> History:
        """The history in a table's metadata."""
        refs, branch = metadata.refs.items(), SnapshotRefType.BRANCH
        return cls(
            snapshots=tuple(
                SnapshotAge(s.snapshot_id, s.timestamp_ms, s.parent_snapshot_id) for s in metadata.snapshots
            ),
            branches={
                name: BranchRules(ref.snapshot_id, ref.min_snapshots_to_keep, ref.max_snapshot_age_ms)
                for name, ref in refs
                if ref.snapshot_ref_type == branch
            },
            tags={
                name: Tag(ref.snapshot_id, ref.max_ref_age_ms) for name, ref in refs if ref.snapshot_ref_type != branch
            },
            properties=dict(metadata.properties),
            format_version=metadata.format_version,
        )


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """Snapshots and tags that an expiry removes, and snapshots that it tags.

    Attributes:
        ids: Snapshots, the oldest first.
        tagged: Name -> a snapshot that gets a tag, so that it stays.
    """

    ids: tuple[int, ...] = ()
    tagged: Mapping[str, Tag] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


def plan_expiry(
    history: History, retention: Retention, now_ms: int, hold_ms: int | None = None, most: int | None = None
) -> ExpiryPlan:
    """Choose which snapshots and tags of a table an expiry removes now.

    Snapshots of `hold_ms` or later stay, too. At most `most` are removed.
    """
    holds = [since for since, _ in _live_holds(history.properties, now_ms)]
    hold_ms = min(holds if hold_ms is None else [*holds, hold_ms], default=None)
    if history.format_version >= FORMAT_VERSION:  # an engine expires its snapshots, without hourly tags
        return ExpiryPlan(ids=_by_age(history, retention, now_ms, hold_ms))
    age_ms = _ms(retention.age_in(history.properties))
    by_id = {one.id: one for one in history.snapshots}
    expired_tags = sorted(name for name, tag in history.tags.items() if _is_expired_tag(name, tag, by_id, now_ms))
    dropped = tuple(expired_tags if most is None else expired_tags[:MOST_AGED])
    tags = {name: tag for name, tag in history.tags.items() if name not in dropped}
    old = _by_age(replace(history, tags=tags), retention, now_ms, hold_ms, recent=RECENT)
    if most is not None:
        recent = {one.id for one in islice(_main_line(history), RECENT)}
        aged = frozenset([number for number in old if number in recent][MOST_AGED:])
        old = tuple(number for number in old if number not in aged)[:most]
    hours = dict(_hours(history, frozenset(old), now_ms - age_ms, age_ms))
    tagged = dict(hours[number] for number in old if number in hours)
    return ExpiryPlan(tuple(number for number in old if number not in hours), tagged, dropped)


def _by_age(
    history: History, retention: Retention, now_ms: int, hold_ms: int | None, recent: int | None = None
) -> tuple[int, ...]:
    """Snapshots that no tag and no branch keeps, oldest first. As in Iceberg, a branch's own settings override the retention."""
    before = now_ms - _ms(retention.age_in(history.properties))
    keep = retention.keep_in(history.properties)
    stay = {tag.head for tag in history.tags.values()}
    past: set[int] = set()
    for name, branch in history.branches.items():
        line = tuple(_ancestry(history, branch.head))
        past |= {one.id for one in line}
        oldest = before if branch.max_age_ms is None else now_ms - branch.max_age_ms
        bound = recent if name == MAIN_BRANCH or BranchName.parse(name) is not None else None
        for place, one in enumerate(line):
            is_recent = one.made_ms >= oldest and (bound is None or place < bound)
            is_held = hold_ms is not None and one.made_ms >= hold_ms
            if place and not (place < (branch.keep or keep) or is_recent or is_held):
                break
            stay.add(one.id)
    limit = before if hold_ms is None else min(before, hold_ms)
    going = (one for one in history.snapshots if one.id not in stay and (one.id in past or one.made_ms < limit))
    return tuple(one.id for one in sorted(going, key=lambda one: one.made_ms))


def _hours(history: History, old: frozenset[int], before: int, age_ms: int) -> Iterator[tuple[int, tuple[str, Tag]]]:
    """Snapshot id -> its hourly tag, for old snapshots that were main's head at a full hour.

    A tag's age counts from the time when its snapshot was replaced as the head.
    """
    for child, one in pairwise(_main_line(history)):
        if one.id in old and child.made_ms >= before and child.made_ms // _HOUR_MS != one.made_ms // _HOUR_MS:
            instant = datetime.fromtimestamp(one.made_ms / 1000, UTC)
            yield one.id, (f"frazil-hourly-{instant:%Y-%m-%dT%H}", Tag(one.id, age_ms + child.made_ms - one.made_ms))


def _is_expired_tag(name: str, tag: Tag, by_id: Mapping[int, SnapshotAge], now_ms: int) -> bool:
    snapshot = by_id.get(tag.head)
    if re.fullmatch(HOURLY_TAG, name) is None or tag.max_age_ms is None or snapshot is None:
        return False
    return now_ms - snapshot.made_ms > tag.max_age_ms


def _main_line(history: History) -> Iterator[SnapshotAge]:
    main = history.branches.get(MAIN_BRANCH)
    return _ancestry(history, main.head) if main is not None else iter(())


def _ancestry(history: History, head: int) -> Iterator[SnapshotAge]:
    by_id = {one.id: one for one in history.snapshots}
    one = by_id.get(head)
    while one is not None:
        yield one
        one = by_id.get(one.parent) if one.parent is not None else None


def _ms(age: timedelta) -> int:
    return int(age.total_seconds() * 1000)


def expiry_updates(
    metadata: TableMetadata, table: str, retention: Retention, now_ms: int, most: int | None = MOST_REMOVED
) -> tuple[TableUpdate, ...]:
    """Table updates that expire old snapshots; none if a pipeline's state would be lost by it.

    `metadata` must contain all branches. At most `most` snapshots expire at once.
    """
    try:
        state = retained_state(metadata, table)
        if state.refusal is not None:
            return ()
        old = plan_expiry(History.from_metadata(metadata), retention, now_ms, state.hold_ms, most)
    except Terminal:  # an unreadable property must not stop a batch; maintenance reports it
        return ()
    return (
        *(_tag(name, tag) for name, tag in old.tagged.items()),
        *(RemoveSnapshotRefUpdate(ref_name=name) for name in old.dropped),
        *((RemoveSnapshotsUpdate(snapshot_ids=list(old.ids)),) if old.ids else ()),
    )


def _tag(name: str, tag: Tag) -> SetSnapshotRefUpdate:
    return SetSnapshotRefUpdate(
        ref_name=name,
        type=SnapshotRefType.TAG,
        snapshot_id=tag.head,
        max_ref_age_ms=tag.max_age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )


def expire_snapshots(lake: Lake, table: str, retention: Retention, now_ms: int) -> int:
    """Expire old snapshots of a table, in a separate commit.

    Returns how many expired.

    Raises:
        Retryable: The catalog is not available now, or others changed the table at the same moment.
    """
    with translated(f"expiring snapshots of table {table}"):
        loaded_table = lake.catalog_of(table).load_table(table)
        updates = expiry_updates(loaded_table.metadata, table, retention, now_ms, most=None)
        if updates:
            heads = ((name, head_of(loaded_table.metadata, name)) for name in loaded_table.metadata.refs)
            send(loaded_table, updates, tuple(AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in heads))
        return sum(len(update.snapshot_ids) for update in updates if isinstance(update, RemoveSnapshotsUpdate))
