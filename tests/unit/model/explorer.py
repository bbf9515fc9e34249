"""Every schedule of the model up to a depth: what may happen to a pipeline, and what must hold whatever did.

Three things are checked in each world that can be reached. No table shows a row twice. The closing table's rows are those before
its position. And there is a way on: with every process dead, runs and at most two commands that the refusals name lead
to a pipeline in which each record has its row in each table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tests.unit.model.protocol import (
    CLOSING,
    FENCES,
    FOLLOWER,
    NAMES,
    Fence,
    Protocol,
    Refused,
    Runner,
    Snapshot,
    Table,
    World,
    committed,
    look,
    snapshot_id,
    with_runner,
)

REFUSED = "a refusal"

HARM = ("restore", "rollback")
"""What a pipeline may refuse to go on after."""

COMMANDS = 3
"""Commands that a recovery may take: one per table."""


class Limits(NamedTuple):
    """How often each thing may happen on one schedule."""

    produce: int = 2
    crash: int = 1
    lost_answer: int = 1
    replay: int = 0
    restore: int = 0
    rollback: int = 0
    foreign: int = 0
    expire: int = 0
    deploy: int = 0
    command: int = 1


class Finding(Exception):
    """A promise that does not hold, with the schedule that leads there."""


class Explored(NamedTuple):
    """What was explored: worlds, the longest schedule, and the first broken promise with its schedule, if any."""

    worlds: int
    depth: int
    finding: str | None


def begin(limits: Limits, files: tuple[bool, ...] = (True,), runners: int = 2) -> World:
    """A new pipeline with one record in Kafka."""
    empty = Table()
    return World(
        end=1,
        tables=(empty, empty, empty),
        before=(None, None, None),
        manifests=(),
        runners=(Runner(),) * runners,
        flights=(),
        files=files[:1],
        left=tuple(sorted(limits._asdict().items())),
    )


def explore(
    start: World, fences: frozenset[Fence] = FENCES, depth: int = 40, files: tuple[bool, ...] = (True,)
) -> Explored:
    """All worlds that can be reached, the nearest first, until a promise breaks."""
    protocol = Protocol(fences)
    parents: dict[World, tuple[World, str] | None] = {start: None}
    recovered: dict[World, str | None] = {}
    waiting = deque([(start, 0)])
    deepest = 0
    while waiting:
        world, steps = waiting.popleft()
        deepest = max(deepest, steps)
        wrong = _broken(world) or _dead_end(protocol, world, recovered)
        if wrong is not None:
            return Explored(len(parents), deepest, f"{wrong}\n{_schedule(parents, world)}")
        if steps == depth:
            continue
        for name, moved in moves(protocol, world, files):
            if name.startswith(REFUSED) and not _harmed(start, world):
                return Explored(len(parents), deepest, f"{name}, and nothing had happened\n{_schedule(parents, world)}")
            after = _pruned(moved)
            if after not in parents:
                parents[after] = (world, name)
                waiting.append((after, steps + 1))
    return Explored(len(parents), deepest, None)


def _harmed(start: World, world: World) -> bool:
    before, runs_left = dict(start.left), dict(world.left)
    return any(runs_left[name] < before[name] for name in HARM)


# --- what may happen --------------------------------------------------------------------------------------------------
def moves(protocol: Protocol, world: World, files: tuple[bool, ...]) -> Iterator[tuple[str, World]]:
    """Everything that may happen next, by name."""
    yield from _runners_move(protocol, world)
    yield from _neighbours_move(world, files)
    for number, (base, manifest) in enumerate(world.flights):
        rest = world._replace(flights=world.flights[:number] + world.flights[number + 1 :])
        yield (
            f"the commit of batch {manifest.mark.n} ({manifest.mark.batch}) arrives late",
            protocol.delivered(rest, base, manifest),
        )


def _runners_move(protocol: Protocol, world: World) -> Iterator[tuple[str, World]]:
    idle = [number for number, runner in enumerate(world.runners) if runner.step == "idle"]
    for number in idle[:1]:  # idle runners are alike
        yield from _begins(protocol, world, number)
    for number in (number for number in range(len(world.runners)) if number not in idle):
        yield from _goes_on(protocol, world, number)


def _begins(protocol: Protocol, world: World, number: int) -> Iterator[tuple[str, World]]:
    yield _begun(world, number, "run")
    if (budget := _spent(world, "replay")) is not None:
        yield _begun(budget, number, "replay")
    if (budget := _spent(world, "command")) is not None:
        named = _ordered(protocol, world, "run")[1]  # what a run that begins now is refused with
        if named is not None:
            yield _begun(budget, number, named)


def _goes_on(protocol: Protocol, world: World, number: int) -> Iterator[tuple[str, World]]:
    runner = world.runners[number]
    try:
        yield f"runner {number}: {runner.step}", protocol.follows(world, number)
    except Refused as refused:
        yield f"{REFUSED} to runner {number}: {refused}", with_runner(world, number, Runner())
    if (budget := _spent(world, "crash")) is not None:
        yield f"runner {number} dies before: {runner.step}", with_runner(budget, number, Runner())
    if runner.step == "send" and (budget := _spent(world, "lost_answer")) is not None:
        assert runner.manifest is not None
        asks_again = with_runner(budget, number, runner._replace(step="decide", base=0))
        flights = (*world.flights, (runner.base, runner.manifest))
        yield f"runner {number} sends, and hears nothing", asks_again._replace(flights=flights)


def _begun(world: World, number: int, order: str) -> tuple[str, World]:
    runner = Runner("look", order, len(world.files) - 1)
    return f"runner {number} begins: {order}", with_runner(world, number, runner)


def _neighbours_move(world: World, files: tuple[bool, ...]) -> Iterator[tuple[str, World]]:
    if (budget := _spent(world, "produce")) is not None:
        yield "a record is produced", budget._replace(end=world.end + 1)
    if len(world.files) < len(files) and (budget := _spent(world, "deploy")) is not None:
        yield "the pipeline file changes", budget._replace(files=files[: len(world.files) + 1])
    for place, table in enumerate(world.tables):
        before = world.before[place]
        if before is not None and (budget := _spent(world, "restore")) is not None:
            restored = tuple(None if number == place else old for number, old in enumerate(world.before))
            put = committed(budget, place, before)
            yield f"{NAMES[place]} is restored from its metadata before", put._replace(before=restored)
        if len(table.chain) > 1 and (budget := _spent(world, "rollback")) is not None:
            yield f"{NAMES[place]} is rolled back", committed(budget, place, table._replace(chain=table.chain[:-1]))
        if table.chain and (budget := _spent(world, "foreign")) is not None:
            snapshot = Snapshot(snapshot_id(table.head, "foreign"), table.rows)
            grown = table._replace(chain=(*table.chain, snapshot))
            yield f"{NAMES[place]} is compacted", committed(budget, place, grown)
        if len(table.chain) > 1 and (budget := _spent(world, "expire")) is not None:
            trimmed = table._replace(chain=table.chain[-1:], cut=True)
            yield f"{NAMES[place]} keeps its head alone", committed(budget, place, trimmed)


def _spent(world: World, name: str) -> World | None:
    runs_left = dict(world.left)
    if not runs_left[name]:
        return None
    runs_left[name] -= 1
    return world._replace(left=tuple(sorted(runs_left.items())))


def _pruned(world: World) -> World:
    """Manifests of batches that nobody knows of are forgotten: worlds that differ in them alone are one."""
    tables = [table for table in (*world.tables, *world.before) if table is not None]
    marks = {
        mark
        for table in tables
        for snapshot in (*table.chain, table.note)
        if snapshot
        for mark in (snapshot.mark, snapshot.told)
    }
    at_work = {runner.manifest for runner in world.runners} | {batch for _, batch in world.flights}
    manifests = tuple(batch for batch in world.manifests if batch.mark in marks or batch in at_work)
    return world if len(manifests) == len(world.manifests) else world._replace(manifests=manifests)


# --- what must hold ---------------------------------------------------------------------------------------------------
def _broken(world: World) -> str | None:
    for name, table in zip(NAMES[: FOLLOWER + 1], world.tables, strict=False):
        if len(set(table.rows)) < len(table.rows):
            return f"{name} shows a row twice: {table.rows}"
    closing = look(world.tables[CLOSING])
    if closing.held is not None and world.tables[CLOSING].rows != tuple(range(closing.held.position)):
        return f"closing table at position {closing.held.position} shows rows {world.tables[CLOSING].rows}"
    return None


def _dead_end(protocol: Protocol, world: World, dead_ends: dict[World, str | None]) -> str | None:
    """With every process dead: what keeps the pipeline from being whole again, or None."""
    alone = world._replace(runners=(Runner(),), flights=(), before=(None, None, None), left=())
    if alone not in dead_ends:
        dead_ends[alone] = _recovers(protocol, _pruned(alone))
    return dead_ends[alone]


def _recovers(protocol: Protocol, world: World) -> str | None:
    commands: list[str] = []
    for _ in range(12):
        after, refusal = _ordered(protocol, world, "run")
        if refusal is None and after == world:
            return _incomplete(world)
        if refusal is not None:
            commands.append(refusal)
            if len(commands) > COMMANDS:
                return f"a dead end: after {', '.join(commands)}"
            after, refusal = _ordered(protocol, world, refusal)
            if refusal is not None:
                return f"a dead end: {commands[-1]} is refused with {refusal}"
        world = after
        if (wrong := _broken(world)) is not None:
            return f"{wrong} after {', '.join(commands) or 'a run'}"
    return f"runs for ever after {', '.join(commands)}"


def _ordered(protocol: Protocol, world: World, order: str) -> tuple[World, str | None]:
    """A process that nobody disturbs, from its first step to its last; or the command that its refusal names."""
    world = world._replace(runners=(Runner("look", order, len(world.files) - 1), *world.runners[1:]))
    for _ in range(10):
        try:
            world = protocol.follows(world, 0)
        except Refused as refused:
            return world, str(refused)
        if world.runners[0].step == "idle":
            break
    return _pruned(world), None


def _incomplete(world: World) -> str | None:
    every = tuple(range(world.end))
    if world.tables[CLOSING].rows != every:
        return f"closing table has rows {world.tables[CLOSING].rows} of {world.end}"
    rows = world.tables[FOLLOWER].rows
    first = 0 if world.files[0] else _first_of_follower(world)
    if world.files[-1] and rows != tuple(range(first, world.end)):
        return f"follower has rows {rows}, expected {first} to {world.end - 1}"
    return None


def _first_of_follower(world: World) -> int:
    """The first offset of the first batch under the newer file."""
    return min((batch.start for batch in world.manifests if batch.kind == "run" and batch.file > 0), default=world.end)


def _schedule(parents: dict[World, tuple[World, str] | None], world: World) -> str:
    names = []
    while (parent := parents[world]) is not None:
        world, name = parent
        names.append(name)
    return "\n".join(f"{number}. {name}" for number, name in enumerate(reversed(names), 1))
