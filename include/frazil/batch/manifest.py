"""The manifest: written before the deciding commit, it lists what every table gets, so that any later run can finish the
batch.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from frazil.batch.changes import ChangeCounts, Merge, Removal, RemovedRange
from frazil.batch.facts import Counts, Range, RecordAges, StagedFile, TableCounts, UnknownFields
from frazil.batch.position import MALFORMED, UPGRADE, BatchMark, Position, check_version
from frazil.batch.schema_change import Demands, SchemaChange
from frazil.error_codes import BAD_HANDOVER, BAD_STATE

MANIFEST_VERSION = 2
"""Version of the manifest's JSON."""

_STORED_NAMES = {"repairs": "settles", "dropped": "left", "created": "made"}
"""Attribute -> its key in the JSON of a manifest."""

Role = Literal["destination", "dead_letters", "ledger"]
Kind = Literal["start", "ingest", "replay", "dead_letters", "reset", "rewind", "repair", "apply", "settle"]


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation that an engine runs on a part's staged rows, because PyIceberg can't.

    Attributes:
        kind: `insert` adds the rows, `merge` changes the rows with their keys.
        variants: Columns whose JSON texts become variants.
    """

    kind: Literal["insert", "merge"] = "insert"
    variants: tuple[str, ...] = ()
    merge: Merge | None = None

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Operation:
        """Read what `dataclasses.asdict` returned.

        Raises:
            Terminal: The operation is one of a newer Frazil.
        """
        if body["kind"] not in ("insert", "merge"):
            raise BAD_HANDOVER.terminal(
                f"a manifest asks for operation {body['kind']!r}, which this Frazil does not know", next_step=UPGRADE
            )
        merge = Merge.from_body(body["merge"]) if body["kind"] == "merge" else None
        return cls(body["kind"], tuple(body["variants"]), merge)


@dataclass(frozen=True, slots=True)
class TablePart:
    """One table's part of a batch: rows to remove and files to add.

    Attributes:
        fit: State of the table that the files were staged for.
        after: Mark of the batch that the table must hold before this one.
        operation: How an engine writes the files' rows; None if a commit makes them data files of the table.
        catalog: The destination's catalog, and `branch` its branch (None: main), whatever the pipeline file says later.
    """

    table: str
    role: Role
    fit: Fit
    after: BatchMark | None
    files: tuple[StagedFile, ...]
    removal: Removal | None = None
    operation: Operation | None = None
    catalog: str | None = None
    branch: str | None = None

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def keeps_rows(self) -> bool:
        """Whether rows of this part would stay if its batch is abandoned: no removal by Kafka columns, and no merge by key."""
        is_merged = self.operation is not None and self.operation.merge is not None
        return self.role == "destination" and self.removal is None and not is_merged

    @property
    def changes(self) -> ChangeCounts | None:
        """Changes that are merged into the table; None if rows are only added, or changes were not counted."""
        is_merged = self.operation is not None and self.operation.merge is not None
        counted = [ChangeCounts.from_ops(file.ops) for file in self.files if file.ops]
        return sum(counted, ChangeCounts()) if is_merged and len(counted) == len(self.files) else None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One batch, ready to be decided.

    Attributes:
        kind: `start` writes the start position of a first run, `ingest` lands records, `replay` lands a range again in
            place of its rows, `dead_letters` lands dead letters that are valid now, `reset` moves the position on demand,
            `rewind` moves it after a rollback of the closing table, `repair` lets a follower that lost rows continue, `apply`
            changes tables as the file declares (`schema_changes`, made once it is decided), `settle` is a repair of an older
            Frazil.
        batch: Batch id, unique per attempt.
        position: The position after the batch; its `n` is the batch's number.
        closing: The part of the closing table; its commit decides the batch.
        followers: The parts of the other tables, in the order of their commits.
        ledger: Name of the ledger, which gets its rows last.
        ledger_after: Mark of the batch that the ledger must hold before this one.
        planned_at: When the ends were fixed, ISO 8601 UTC.
        config: Hash of the settings that decide a record's outcome.
        complete_through: With this batch, every record that Kafka had accepted by this instant has landed; or None.
        skipped: Offsets that retention had deleted before they were read, skipped as the pipeline file allows.
        reason: The reason that the requesting person gave.
        repairs: The table that lost rows, with `repair`, `settle` or a reset of lost tables. Whatever it holds, the batch is not
            refused because of it.
        recovers: Paths of manifests, oldest first, of earlier batches whose rows the ledger gets as well.
        abandoned: Number of batches that a repair of the ledger abandons; of a `settle` of another table, at most so many rows.
        letter_topic: Name of the topic that also gets the batch's dead letters; None if there is none.
        tables: With several destinations, the outcomes of the records that were routed to each.
        table_ranges: With several destinations, the ranges of replayed letters of each.
        dropped: Destinations that the pipeline file no longer names: this batch is their last one.
        unmarked: Existing destinations without a part in any batch yet; an engine will write their first rows.
        unknown_fields: Fields of written records that no column takes.
        schema_changes: Schema changes for the batch's records, made before it was decided; with `apply` made afterwards.
        record_ages: Records by their age at `planned_at`, if ages were counted.
        created: Auto-created tables of the pipeline, up to this batch.
    """

    pipeline: str
    kind: Kind
    batch: str
    run: str
    position: Position
    closing: TablePart
    followers: tuple[TablePart, ...]
    ledger: str
    ledger_after: BatchMark | None
    counts: Counts
    dead_codes: Mapping[str, int]
    planned_at: str
    started_at: str
    written_at: str
    phases: Mapping[str, float]
    version: str
    config: str
    complete_through: str | None
    ranges: tuple[Range, ...] = ()
    skipped: tuple[Range, ...] = ()
    bytes_read: int = 0
    started_by: str = ""
    reason: str | None = None
    repairs: str | None = None
    recovers: tuple[str, ...] = ()
    abandoned: int = 0
    letter_topic: str | None = None
    tables: Mapping[str, TableCounts] = field(default_factory=dict)
    table_ranges: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    unknown_fields: UnknownFields = field(default_factory=UnknownFields)
    schema_changes: Demands = field(default_factory=dict)
    created: tuple[str, ...] = ()
    record_ages: RecordAges = field(default_factory=dict)

    @property
    def mark(self) -> BatchMark:
        """The mark that every table of the batch holds once it has its part."""
        return BatchMark(self.position.n, self.batch, self.position.epoch)

    def follower(self, table: str) -> TablePart | None:
        """The part of a follower; None if the table gets none."""
        return next((part for part in self.followers if part.table == table), None)

    def follows(self, table: str, last: BatchMark | None) -> bool:
        """Whether `last`, the mark of a follower or the ledger, is that of the batch before this one.

        A rewind also accepts the mark of an abandoned batch that landed late, because it removes that batch's rows. It can't
        remove them from a destination without Kafka columns. An older mark is refused: no batch lands the missing rows again.
        """
        part, after = self.follower(table), self.expected_mark(table)
        if last == after:
            return True
        is_late = last is not None and (-1 if after is None else after.n) < last.n < self.position.n
        return self.kind == "rewind" and is_late and not (part is not None and part.keeps_rows)

    def expected_mark(self, table: str) -> BatchMark | None:
        """The mark that a follower, or the ledger, must hold before this batch."""
        part = self.follower(table)
        return self.ledger_after if part is None else part.after

    def accepts_rollback(self, table: str) -> bool:
        """Whether a table may have been rolled back since the batch was planned.

        A rewind, and a repair of the table, are made for a table that was. A closing ledger holds the batch's decision: if a
        rollback only took its rows, they are written again.
        """
        return self.kind == "rewind" or table in (self.repairs, self.closing.table)

    def removed_for_good(self, part: TablePart) -> tuple[RemovedRange, ...]:
        """The ranges that a part removes; none if its files bring back the rows that stay."""
        return part.removal.ranges if part.removal is not None and not self._rewrites(part) else ()

    def rows_added(self, part: TablePart) -> int:
        """The number of rows that a part adds; 0 if its files only bring back rows that it removes."""
        return 0 if self._rewrites(part) else part.rows

    def _rewrites(self, part: TablePart) -> bool:
        return self.kind == "dead_letters" and part.role == "dead_letters"

    @property
    def parts(self) -> tuple[TablePart, ...]:
        """Closing table and followers."""
        return (self.closing, *self.followers)

    def to_json(self) -> str:
        """The text of the file."""
        body = dataclasses.asdict(self, dict_factory=_without_empty_tails) | {
            "v": MANIFEST_VERSION,
            "position": self.position.to_json(),
            "tables": {table: counts.to_body() for table, counts in self.tables.items()},
        }
        body = {_STORED_NAMES.get(name, name): value for name, value in body.items()}
        for changes in body["schema_changes"].values():
            for change in changes:
                del change["position"], change["docs"]  # of demands only
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read the text of the file.

        Raises:
            Terminal: It is no manifest of this version.
        """
        try:
            body = json.loads(text)
            check_version("manifest", body.pop("v"), MANIFEST_VERSION)
            body["position"] = Position.from_json(body["position"])
            body["closing"] = _part_from_body(body["closing"])
            body["followers"] = tuple(_part_from_body(part) for part in body["followers"])
            body["ledger_after"] = _mark_from_body(body["ledger_after"])
            body |= {name: body.pop(stored) for name, stored in _STORED_NAMES.items()}
            body["counts"] = Counts(**body["counts"])
            for name in ("ranges", "skipped"):
                body[name] = tuple(Range(**r) for r in body[name])
            body["unknown_fields"] = UnknownFields(**body["unknown_fields"])
            for name in ("recovers", "dropped", "unmarked", "created"):
                body[name] = tuple(body[name])
            body["table_ranges"] = {
                table: tuple(Range(**r) for r in ranges) for table, ranges in body["table_ranges"].items()
            }
            body["tables"] = {
                table: TableCounts.from_body(counts_body) for table, counts_body in body["tables"].items()
            }
            body["schema_changes"] = {
                table: tuple(SchemaChange(tuple(c["path"]), c["kind"], c["type"]) for c in changes)
                for table, changes in body["schema_changes"].items()
            }
            body["record_ages"] = {int(age): count for age, count in body["record_ages"].items()}
            topic = body["letter_topic"]  # in older manifests an object that also has the topic's id
            body["letter_topic"] = topic["name"] if isinstance(topic, dict) else topic
            return cls(**body)
        except MALFORMED as error:
            # The path came from a table, so this may be the text of any file: no message quotes it.
            raise BAD_STATE.terminal(f"this is not a manifest: {type(error).__name__}") from error


def _part_from_body(body: dict[str, Any]) -> TablePart:
    fit = body["fit"]
    fields = {int(number): field_type for number, field_type in fit["fields"].items()}
    files = tuple(StagedFile(**file) for file in body["files"])
    return TablePart(
        body["table"],
        body["role"],
        Fit(fit["uuid"], fit["spec_id"], fields),
        _mark_from_body(body["after"]),
        files,
        Removal.from_body(body["removal"]) if body["removal"] else None,
        Operation.from_body(body["operation"]) if body["operation"] else None,
        body["catalog"],
        body["branch"],
    )


def _mark_from_body(body: dict[str, Any] | None) -> BatchMark | None:
    return None if body is None else BatchMark(**body)


def _without_empty_tails(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A part of the manifest as JSON. An empty `lost_tails` is left out: older versions know no such key."""
    return {name: value for name, value in fields if name != "lost_tails" or value}


_DECIMAL = re.compile(r"decimal\((\d+), (\d+)\)")


@dataclass(frozen=True, slots=True)
class Fit:
    """The state of a table that files were staged for: its UUID, its partition spec, and field id -> type.

    The type of a struct, list or map is only that word, because its fields have ids of their own.
    """

    uuid: str
    spec_id: int
    fields: Mapping[int, str]

    def mismatch(self, table_fit: Fit) -> str | None:
        """Why files that were staged for this state don't fit the table's present one; None if they fit.

        Added and widened fields do no harm: readers take null for an added field, and the wider type for old values.
        """
        if table_fit.uuid != self.uuid:
            return f"it was replaced: files were staged for {self.uuid}, found {table_fit.uuid}"
        if table_fit.spec_id != self.spec_id:
            return f"its partition spec changed from {self.spec_id} to {table_fit.spec_id} since files were staged"
        changed = [
            f"{n}: {staged_type} -> {table_fit.fields.get(n, 'gone')}"
            for n, staged_type in self.fields.items()
            if not _is_read_as(staged_type, table_fit.fields.get(n, ""))
        ]
        return f"columns changed since files were staged: {', '.join(changed)}" if changed else None


def _is_read_as(staged: str, current: str) -> bool:
    """Whether values of one type can be read as another, by the promotions of Iceberg's format version 2."""
    if staged == current or (staged, current) in {("int", "long"), ("float", "double")}:
        return True
    before, after = _DECIMAL.fullmatch(staged), _DECIMAL.fullmatch(current)
    return bool(before and after and before[2] == after[2] and int(before[1]) <= int(after[1]))
