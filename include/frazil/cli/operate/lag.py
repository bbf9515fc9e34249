"""`frazil lag`: how far a pipeline is behind its topics."""

from typing import TYPE_CHECKING

from frazil.cli.output import console
from frazil.cli.output.options import Json, PipelineName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from frazil.report.lag import Lag, PartitionLag


def lag(pipeline: PipelineName, *, as_json: Json = False) -> None:
    """Show how far a pipeline is behind its topics, by partition. Reads only, and starts no engine.

    [cyan]lag[/cyan]: offsets that the next run would read. [cyan]held back[/cyan]: offsets behind an open transaction,
    which nobody can read yet. [cyan]headroom[/cyan]: offsets between the log start and the position, what retention may
    delete before records are lost. [cyan]mirrored[/cyan]: what the consumer group shows to other tools.
    """
    from frazil.project import Project
    from frazil.report.lag import lag as report

    project = Project.load()
    backlog = report(project, project.pipeline(pipeline))
    if as_json:
        console.print_json({"pipeline": pipeline, **_json(backlog)})
    else:
        print_lag(pipeline, backlog)


def print_lag(pipeline: str, backlog: "Lag") -> None:
    """Print the partitions by topic, then the totals."""
    readable = [partition for partition in backlog.partitions if partition.log is not None]
    for topic in dict.fromkeys(partition.topic for partition in readable):
        console.headline(topic)
        console.show_table(_table([partition for partition in readable if partition.topic == topic]))
    if readable:
        console.say()
    for line in _totals(backlog):
        console.say(f"{pipeline}: {line}")


def _table(partitions: "Iterable[PartitionLag]") -> "Table":
    ends = ("partition", "position", "stable\nend", "high\nwatermark")
    table = console.new_table(numbers=(*ends, "lag", "held\nback", "headroom", "mirrored"), is_tight=True)
    for partition in partitions:
        log = (partition.log.stable_end, partition.log.high_watermark) if partition.log is not None else (None, None)
        position = (
            "none yet"
            if partition.position is None and not partition.state
            else partition.state
            if partition.position is None
            else f"{partition.position:,}"
        )
        numbers = (*log, partition.lag, partition.held_back, partition.headroom, partition.mirrored)
        table.add_row(str(partition.partition), position, *("-" if n is None else f"{n:,}" for n in numbers))
    return table


def _totals(backlog: "Lag") -> "Iterator[str]":
    if backlog.n is None:
        yield "never ran, so there is no position yet"
    else:
        yield f"batch {backlog.n} holds the position, in snapshot {backlog.snapshot_id}"
    numbers = (("lag", backlog.total), ("held back", backlog.held_back), ("least headroom", backlog.headroom))
    if figures := [f"{name} {value:,}" for name, value in numbers if value is not None]:
        yield ", ".join(figures)
    yield from _oddities(backlog)
    yield f"complete through {backlog.complete_through or 'an instant that is not known'}"


def _oddities(backlog: "Lag") -> "Iterator[str]":
    vanished = {partition.topic for partition in backlog.partitions if partition.state == "vanished"}
    if vanished:
        yield f"not in Kafka any more: {', '.join(sorted(vanished))}"
    for state in ("recreated", "other cluster"):
        topics = {partition.topic for partition in backlog.partitions if partition.state == state}
        if topics:
            yield f"{state}, so the position says nothing about it: {', '.join(sorted(topics))}"
    if backlog.absent:
        yield f"not in Kafka: {', '.join(backlog.absent)}"
    if backlog.group_problem:
        yield f"consumer group {backlog.group} can't be read: {backlog.group_problem}"


def _json(backlog: "Lag") -> dict[str, object]:
    return {
        "n": backlog.n,
        "snapshot_id": backlog.snapshot_id,
        "complete_through": backlog.complete_through,
        "lag": backlog.total,
        "held_back": backlog.held_back,
        "headroom": backlog.headroom,
        "group": backlog.group,
        "group_problem": backlog.group_problem,
        "absent": backlog.absent,
        "partitions": [_partition(partition) for partition in backlog.partitions],
    }


def _partition(partition: "PartitionLag") -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "position": partition.position,
        "log_start": partition.log.log_start if partition.log else None,
        "stable_end": partition.log.stable_end if partition.log else None,
        "high_watermark": partition.log.high_watermark if partition.log else None,
        "lag": partition.lag,
        "held_back": partition.held_back,
        "headroom": partition.headroom,
        "mirrored": partition.mirrored,
        "state": partition.state,
    }
