"""The protocol of docs/design.md as a model: small enough that every schedule up to a depth can be tried.

One topic partition, a closing table, one follower, the ledger. Two runners carry out the steps of a batch one by one, so that
each may stand still, die or be overtaken between any two. A table is the ancestry of its main branch and the note that its
property keeps. What a fence of the protocol prevents is seen by taking the fence out (`FENCES`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

CLOSING, FOLLOWER, LEDGER = range(3)
NAMES = ("closing table", "follower", "ledger")


class Fence(StrEnum):
    """What keeps rivals, zombies and restored tables apart."""

    IDS = "the ids of batches are compared, not their numbers alone"
    HEAD = "a commit asserts the snapshot that it was checked on"
    POSITION = "the deciding commit asserts position and last batch"
    DECIDED = "a follower gets a part only while the closing table holds the batch"
    AFTER = "a follower takes a part only behind the batch that the manifest names"
    FILE = "a batch of an older pipeline file than the last batch's is refused"
    TWICE = "a loss is believed only if two looks agree"


FENCES = frozenset(Fence)


class Mark(NamedTuple):
    """Number, id and epoch of a batch."""

    n: int
    batch: str
    epoch: int


class Snapshot(NamedTuple):
    """What main showed at one moment. Compaction and foreign commits carry no mark."""

    id: int
    rows: tuple[int, ...]
    mark: Mark | None = None
    position: int = 0
    told: Mark | None = None


class Table(NamedTuple):
    """Ancestry of main, oldest first; the snapshot that the property names; whether an expiry took older snapshots."""

    chain: tuple[Snapshot, ...] = ()
    note: Snapshot | None = None
    cut: bool = False

    @property
    def head(self) -> int:
        """Id of main's snapshot."""
        return self.chain[-1].id if self.chain else 0

    @property
    def rows(self) -> tuple[int, ...]:
        """Offsets of the rows that readers see."""
        return self.chain[-1].rows if self.chain else ()


class Look(NamedTuple):
    """What a table says when it is read: the snapshot that holds the last batch, and what a rollback took back."""

    held: Snapshot | None
    lost: Snapshot | None = None

    @property
    def mark(self) -> Mark | None:
        """The batch that the table holds."""
        return self.held.mark if self.held is not None else None


class Looks(NamedTuple):
    """What all tables say, read one after another."""

    closing: Look
    follower: Look
    ledger: Look

    @property
    def position(self) -> int:
        """The next offset, as the closing table says."""
        return self.closing.held.position if self.closing.held is not None else 0

    @property
    def kept(self) -> int:
        """The offset up to which the follower has its rows."""
        return self.follower.held.position if self.follower.held is not None else 0

    @property
    def told(self) -> Mark | None:
        """The batch that the follower was given last, as the ledger says."""
        return self.ledger.held.told if self.ledger.held is not None else None


class Manifest(NamedTuple):
    """A batch before it is decided. It never changes."""

    mark: Mark
    kind: str
    start: int
    end: int
    position: int
    planned: int
    has_part: bool
    after: tuple[Mark | None, Mark | None, Mark | None]
    is_rolled_back: bool
    file: int
    told: Mark | None


class Runner(NamedTuple):
    """A process: the step it is at, the file it read, what it saw, and the batch at work."""

    step: str = "idle"
    order: str = "run"
    file: int = 0
    seen: tuple[Look, ...] = ()
    doubted: Looks | None = None
    manifest: Manifest | None = None
    base: int = 0


class World(NamedTuple):
    """Everything there is, and how often what may still happen."""

    end: int
    tables: tuple[Table, Table, Table]
    before: tuple[Table | None, Table | None, Table | None]
    manifests: tuple[Manifest, ...]
    runners: tuple[Runner, ...]
    flights: tuple[tuple[int, Manifest], ...]
    files: tuple[bool, ...]
    left: tuple[tuple[str, int], ...]


class Refused(Exception):
    """A runner may not go on; says which command does."""


_ids: dict[tuple[object, ...], int] = {}


def snapshot_id(*parts: object) -> int:
    """An id that is the same for the same content on the same past: equal worlds are one world."""
    return _ids.setdefault(parts, len(_ids) + 1)


def look(table: Table) -> Look:
    """What a table holds: the ancestry decides, and the property where an expiry took what carried it."""
    marked = next((snapshot for snapshot in reversed(table.chain) if snapshot.mark is not None), None)
    if table.note is None or (marked is not None and marked.id == table.note.id):
        return Look(marked)
    if marked is None and table.cut:
        return Look(table.note)
    return Look(marked, table.note)


def landed(table: Table, mark: Mark) -> bool:
    """Whether a table holds, or held in the ancestry of main, exactly this batch."""
    return any(snapshot.mark == mark for snapshot in table.chain) or (
        look(table).lost is None and look(table).mark == mark
    )


def commit(table: Table, rows: tuple[int, ...], mark: Mark, position: int = 0, announced: Mark | None = None) -> Table:
    """A commit moves main and the property at once."""
    snapshot = Snapshot(
        snapshot_id(table.head, rows, mark, position, announced), tuple(sorted(rows)), mark, position, announced
    )
    return table._replace(chain=(*table.chain, snapshot), note=snapshot)


# --- the runners ------------------------------------------------------------------------------------------------------
class Protocol(NamedTuple):
    """The steps of a batch, with these fences."""

    fences: frozenset[Fence] = FENCES

    def follows(self, world: World, number: int) -> World:
        """The next step of a runner. A runner that is refused is idle again.

        Raises:
            Refused: Of a look: some command must be given first.
        """
        runner = world.runners[number]
        step = getattr(self, f"_{runner.step}")
        after: World = step(world, number, runner)
        return after

    def _look(self, world: World, number: int, runner: Runner) -> World:
        """The tables are read one after another, the closing one last."""
        views = tuple(look(world.tables[place]) for place in (FOLLOWER, LEDGER))
        return with_runner(world, number, runner._replace(step="judge", seen=views))

    def _judge(self, world: World, number: int, runner: Runner) -> World:
        looks = Looks(look(world.tables[CLOSING]), *runner.seen)
        command = self._command(world, looks)
        if command is not None and command != runner.order:
            if runner.doubted == looks or Fence.TWICE not in self.fences:
                raise Refused(command)
            # A rival between two reads looks like a loss, but not twice alike.
            return with_runner(world, number, runner._replace(step="look", seen=(), doubted=looks))
        ready = runner._replace(seen=(), doubted=None)
        if command is None and (last := self._unfinished(world, looks)) is not None:
            return with_runner(world, number, ready._replace(step="forward", manifest=last))
        manifest = self._staged(world, number, looks, command)
        if manifest is None:
            return with_runner(world, number, Runner())
        next_world = world._replace(manifests=(*world.manifests, manifest))
        return with_runner(next_world, number, ready._replace(step="decide", manifest=manifest))

    def _command(self, world: World, looks: Looks) -> str | None:
        """What must be ordered before runs go on."""
        if self._has_other_closing(looks):
            return "reset"
        last = self._unfinished(world, looks)
        if looks.ledger.lost is not None or (last is not None and not self._follows(looks.ledger.mark, last, LEDGER)):
            return "rebuild"
        return "repair" if self._lacks(looks, last) else None

    def _has_other_closing(self, looks: Looks) -> bool:
        """Whether the closing table is not the one that decided what the others know."""
        if looks.closing.lost is not None:
            return True
        n = number_of(looks.closing.mark)
        if number_of(looks.follower.mark) > n or number_of(looks.ledger.mark) > n:
            return True
        return number_of(looks.ledger.mark) == n and not self._same(looks.ledger.mark, looks.closing.mark)

    def _unfinished(self, world: World, looks: Looks) -> Manifest | None:
        """The last decided batch, if the ledger does not know it."""
        return None if self._same(looks.closing.mark, looks.ledger.mark) else manifest_of(world, looks.closing.mark)

    def _lacks(self, looks: Looks, last: Manifest | None) -> bool:
        """Whether the follower does not hold what it was given."""
        if looks.follower.lost is not None:
            return True
        if last is not None:
            is_given = self._same(looks.follower.mark, last.mark)
            return not is_given and not self._follows(looks.follower.mark, last, FOLLOWER)
        return looks.told is not None and not self._same(looks.follower.mark, looks.told)

    def _same(self, one: Mark | None, second: Mark | None) -> bool:
        if Fence.IDS in self.fences or one is None or second is None:
            return one == second
        return one.n == second.n

    def _staged(self, world: World, number: int, looks: Looks, command: str | None) -> Manifest | None:
        """The batch of an order, or None if there is nothing to do."""
        order, position = world.runners[number].order, looks.position
        if order == "reset" and command is not None:
            return self._manifest(world, number, looks, self._reset_to(world, looks), position)
        if order == "rebuild" and command is not None:
            return self._manifest(world, number, looks, position, position)
        if order == "repair" and command is not None:
            return self._manifest(world, number, looks, min(position, looks.kept), position)
        if order == "replay" and position > 0:
            return self._manifest(world, number, looks, 0, position)
        if order == "run" and position < world.end:
            return self._manifest(world, number, looks, position, world.end)
        return None

    def _reset_to(self, world: World, looks: Looks) -> int:
        """How far the rows of both tables are sure: what comes behind is taken out, and comes again."""
        closing = looks.closing
        marks = [mark for each in looks for mark in (each.mark, each.lost and each.lost.mark)]
        taken_back = [
            batch
            for batch in (manifest_of(world, mark) for mark in marks)
            if batch is not None and batch.kind != "run" and batch.mark.n >= number_of(closing.mark)
        ]
        manifest = manifest_of(world, closing.mark)
        if manifest is not None and not landed(world.tables[LEDGER], manifest.mark):
            taken_back.append(manifest)  # the ledger knows another batch, and so may the follower
        starts = [looks.position, *(batch.start for batch in taken_back)]
        return min(starts)

    def _is_hurt(self, world: World, looks: Looks) -> bool:
        """Whether the follower lost something, too: a reset leaves it as it is, for a repair."""
        undone = manifest_of(world, looks.closing.lost.mark if looks.closing.lost is not None else looks.closing.mark)
        marks = [looks.told, undone.mark if undone is not None and undone.has_part else None]
        is_given = looks.told is None or any(self._same(looks.follower.mark, mark) for mark in marks)
        return looks.follower.lost is not None or not is_given

    def _manifest(self, world: World, number: int, looks: Looks, start: int, end: int) -> Manifest:
        runner = world.runners[number]
        marks = [mark for each in looks for mark in (each.mark, each.lost and each.lost.mark) if mark is not None]
        n = 1 + max((mark.n for mark in marks), default=-1)
        epoch = max((mark.epoch for mark in marks), default=0) + (runner.order == "reset")
        own = [
            int(batch.mark.batch.partition(".")[2])
            for batch in world.manifests
            if batch.mark.batch.startswith(f"{number}.")
        ]
        serial = 1 + max(own, default=-1)
        has_part = {"reset": not self._is_hurt(world, looks), "repair": True, "rebuild": False}.get(
            runner.order, world.files[runner.file]
        )
        return Manifest(
            Mark(n, f"{number}.{serial}", epoch),
            runner.order,
            start,
            end,
            {"run": end, "reset": start}.get(runner.order, looks.position),
            looks.position,
            has_part,
            (looks.closing.mark, looks.follower.mark, looks.ledger.mark),
            looks.closing.lost is not None,
            runner.file,
            last_part(world) if runner.order == "rebuild" else looks.told,
        )

    def _decide(self, world: World, number: int, runner: Runner) -> World:
        """The check on the loaded table. The commit is the next step: anything may come between."""
        manifest, closing = _at_work(runner), world.tables[CLOSING]
        if landed(closing, manifest.mark):
            return with_runner(world, number, runner._replace(step="forward"))
        if not self._stands(world, manifest):
            return with_runner(world, number, Runner())
        return with_runner(world, number, runner._replace(step="send", base=closing.head))

    def _stands(self, world: World, manifest: Manifest) -> bool:
        view = look(world.tables[CLOSING])
        position = view.held.position if view.held is not None else 0
        if Fence.FILE in self.fences and manifest.kind == "run":
            last = manifest_of(world, view.mark)
            if last is not None and manifest.file < last.file:
                return False
        if Fence.POSITION not in self.fences:
            return True
        if (view.lost is not None) and not manifest.is_rolled_back:
            return False
        return position == manifest.planned and self._same(view.mark, manifest.after[CLOSING])

    def _send(self, world: World, number: int, runner: Runner) -> World:
        after = self.delivered(world, runner.base, _at_work(runner))
        if after is world:  # refused by the catalog: look at the table again
            return with_runner(world, number, runner._replace(step="decide", base=0))
        return with_runner(after, number, runner._replace(step="forward", base=0))

    def delivered(self, world: World, base: int, manifest: Manifest) -> World:
        """What the catalog makes of a commit; the same world if it refuses."""
        table = world.tables[CLOSING]
        if Fence.HEAD in self.fences and table.head != base:
            return world
        rows = [offset for offset in table.rows if not _goes(manifest, offset, CLOSING)]
        rows += _lands(manifest, CLOSING)
        return committed(world, CLOSING, commit(table, tuple(rows), manifest.mark, manifest.position))

    def _forward(self, world: World, number: int, runner: Runner) -> World:
        manifest, table = _at_work(runner), world.tables[FOLLOWER]
        next_runner = runner._replace(step="record")
        if Fence.DECIDED in self.fences and not landed(world.tables[CLOSING], manifest.mark):
            return with_runner(world, number, Runner())
        if not manifest.has_part or landed(table, manifest.mark):
            return with_runner(world, number, next_runner)
        view, as_it_is = look(table), manifest.kind in ("repair", "reset")
        if not as_it_is and view.lost is not None:
            return with_runner(world, number, Runner())
        if Fence.AFTER in self.fences and not self._follows(view.mark, manifest, FOLLOWER):
            return with_runner(world, number, Runner())
        rows = [offset for offset in table.rows if not _goes(manifest, offset, FOLLOWER)]
        rows += _lands(manifest, FOLLOWER)
        after = commit(table, tuple(rows), manifest.mark, manifest.position)
        return with_runner(committed(world, FOLLOWER, after), number, next_runner)

    def _record(self, world: World, number: int, runner: Runner) -> World:
        manifest, table = _at_work(runner), world.tables[LEDGER]
        done = with_runner(world, number, Runner())
        if landed(table, manifest.mark):
            return done
        view = look(table)
        if view.lost is not None and manifest.kind not in ("reset", "rebuild"):
            return done
        if Fence.AFTER in self.fences and not self._follows(view.mark, manifest, LEDGER):
            return done
        announced = manifest.mark if manifest.has_part else manifest.told
        after = commit(table, (*table.rows, manifest.mark.n), manifest.mark, manifest.position, announced)
        return with_runner(committed(world, LEDGER, after), number, Runner())

    def _follows(self, mark: Mark | None, manifest: Manifest, place: int) -> bool:
        """Whether a table holds the batch last that a manifest names. A reset takes a late batch of those that it gave up, too."""
        after = manifest.after[place]
        if self._same(mark, after):
            return True
        if manifest.kind == "rebuild" and place == LEDGER:
            return True
        return manifest.kind == "reset" and number_of(after) < number_of(mark) < manifest.mark.n


def last_part(world: World) -> Mark | None:
    decided = (manifest_of(world, snapshot.mark) for snapshot in reversed(world.tables[CLOSING].chain))
    return next((batch.mark for batch in decided if batch is not None and batch.has_part), None)


def _lands(manifest: Manifest, table: int) -> range:
    """Offsets whose rows a batch brings."""
    if manifest.kind in ("run", "replay") or (manifest.kind == "repair" and table == FOLLOWER):
        return range(manifest.start, manifest.end)
    return range(0)


def _goes(manifest: Manifest, offset: int, table: int) -> bool:
    """Whether a batch takes out the row of an offset."""
    if manifest.kind == "replay":
        return manifest.start <= offset < manifest.end
    if manifest.kind == "reset":
        return offset >= manifest.start
    return manifest.kind == "repair" and table == FOLLOWER and offset >= manifest.start


def number_of(mark: Mark | None) -> int:
    """The number of a batch; -1 before the first."""
    return -1 if mark is None else mark.n


def manifest_of(world: World, mark: Mark | None) -> Manifest | None:
    """The manifest of a batch, if anybody still knows it."""
    return next((batch for batch in world.manifests if batch.mark == mark), None)


def _at_work(runner: Runner) -> Manifest:
    assert runner.manifest is not None
    return runner.manifest


def with_runner(world: World, number: int, runner: Runner) -> World:
    """The world with a runner in another state."""
    runners = (*world.runners[:number], runner, *world.runners[number + 1 :])
    return world._replace(runners=runners)


def committed(world: World, place: int, table: Table) -> World:
    """The world with a table in another state; what it was may be restored."""
    before = tuple(world.tables[place] if number == place else old for number, old in enumerate(world.before))
    tables = tuple(table if number == place else old for number, old in enumerate(world.tables))
    return world._replace(before=before, tables=tables)  # type: ignore[arg-type]
