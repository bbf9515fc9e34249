"""Records into topics: `frazil produce` sends made-up ones or lines of a file, `frazil capture` new lines of files or
rows of a database.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json, Progress, Yes
from frazil.errors import Terminal

if TYPE_CHECKING:
    from frazil.capture.position import CaptureOrder
    from frazil.capture.run import CaptureResult
    from frazil.kafka.client.cluster import Cluster, OutgoingRecord
    from frazil.kafka.write.produce import Produced
    from frazil.pipeline.settings.capture import Capture
    from frazil.project import Project


PARTITIONS = 6
"""Partitions of a topic that is created for generated records."""


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to send to.", show_default=False)]
Generate = Annotated[Literal["pizzas", "payments"] | None, typer.Option(help="Make up records of this kind.")]
Count = Annotated[int | None, typer.Option(min=1, help="How many records to make up.")]
Broken = Annotated[
    int, typer.Option(min=0, max=1000, help="How many of every thousand made-up records are broken on purpose.")
]
Seed = Annotated[int | None, typer.Option(help="Equal seeds make up equal records.", show_default="another each time")]
Lines = Annotated[Path | None, typer.Option(metavar="LINES", help="Send the lines of this file, one record each.")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME=TEXT", help="Header of each record. May be repeated.")
]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Records per second.", show_default="as fast as possible")]
Partitions = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Create the topic with so many if it is missing.",
        show_default=f"{PARTITIONS} with --generate, else never",
    ),
]
ClusterName = Annotated[str, typer.Option(help="Cluster of the settings file.")]


def produce(  # noqa: PLR0913 - the options of a command
    topic: Topic,
    *,
    generate: Generate = None,
    count: Count = None,
    broken_per_thousand: Broken = 0,
    seed: Seed = None,
    file: Lines = None,
    header: Headers = None,
    rate: Rate = None,
    partitions: Partitions = None,
    cluster: ClusterName = "local",
    as_json: Json = False,
) -> None:
    """Send records to a topic; every one is acknowledged by all in-sync replicas, and lands once.

    Give either [cyan]--generate[/cyan] with [cyan]--count[/cyan], or [cyan]--file[/cyan].
    """
    from frazil.project import Project

    headers = tuple(map(_header, header or ()))
    records = (
        replace(record, headers=(*record.headers, *headers))
        for record in _records(generate, count, seed, broken_per_thousand, file)
    )
    target = Project.load().cluster(cluster)
    with Progress() as progress:
        if partitions is None and generate is not None:
            partitions = PARTITIONS
        created = partitions is not None and ensure_topic(target, topic, partitions)
        if created:
            progress.done(f"topic {topic}: created with {partitions} partitions")
        delivery = _send(target, topic, records, rate, count, progress)
    if as_json:
        console.print_json(
            {
                "topic": topic,
                "created": created,
                "count": delivery.count,
                "seconds": round(delivery.seconds, 3),
                "offsets": delivery.offsets,
            }
        )
    else:
        console.say(
            f"{delivery.count:,} records in {topic}, {len(delivery.offsets)} partitions, {delivery.seconds:.1f} s"
        )


def ensure_topic(cluster: "Cluster", topic: str, partitions: int) -> bool:
    """Create a topic unless it exists, with any number of partitions.

    Returns:
        Whether it was created.

    Raises:
        Terminal: The cluster refuses it.
        Retryable: No broker answers.
    """
    from frazil.kafka.admin.observe import observe
    from frazil.kafka.admin.topics import create_topic

    try:
        observe(cluster, [topic])
    except Terminal:
        # Missing, or refused for a reason that creating it meets again and names.
        return create_topic(cluster, topic, partitions)
    return False


def _header(text: str) -> tuple[str, bytes]:
    name, is_given, content = text.partition("=")
    if not is_given:
        raise typer.BadParameter(f"expected NAME=TEXT, found {text!r}", param_hint="--header")
    return name, content.encode()


def _records(
    generate: Literal["pizzas", "payments"] | None,
    count: int | None,
    seed: int | None,
    broken_per_thousand: int,
    file: Path | None,
) -> "Iterator[OutgoingRecord]":
    from frazil.generators import GENERATORS, lines

    if (generate is None) == (file is None):
        raise typer.BadParameter("give either --generate with --count, or --file", param_hint="--generate / --file")
    if file is not None:
        if count is not None:
            raise typer.BadParameter("goes with --generate only; a file is sent whole", param_hint="--count")
        return lines(file)
    if count is None:
        raise typer.BadParameter("say how many records to make up", param_hint="--count")
    return GENERATORS[str(generate)](count, seed=seed, broken_per_thousand=broken_per_thousand)


def _send(
    cluster: "Cluster",
    topic: str,
    records: "Iterator[OutgoingRecord]",
    rate: float | None,
    count: int | None,
    progress: Progress,
) -> "Produced":
    from frazil.kafka.write import produce

    total = f" of {count:,}" if count is not None else ""
    return produce.produce(
        cluster, topic, records, rate, lambda done: progress.counting(f"{topic}: {done:,}{total} records acknowledged")
    )


CaptureName = Annotated[str, typer.Argument(metavar="CAPTURE", help="Name of a capture.", show_default=False)]
From = Annotated[
    Literal["beginning", "end", "position"] | None,
    typer.Option(
        "--from",
        help="Go on there instead: with all that is there, with what comes from now on, or where it stood, in another"
        " topic. Records may be captured again, or left out.",
        show_default="the position",
    ),
]
Why = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="With --from: why, kept with the position.", show_default=False)
]


def capture(
    name: CaptureName,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be captured; nothing is sent or made.")
    ] = False,
    from_: From = None,
    reason: Why = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run a capture once: what is new in its files, or in its database, goes to its topic, each line or row once.

    Records and position are committed together. A run that is killed is followed by one that continues after it; a run that
    begins ends another one of the same capture.
    """
    from frazil.project import Project

    if (from_ is None) != (not reason):
        raise typer.BadParameter("--from and --reason go together: the position keeps why it was moved")
    if dry_run and from_ is not None:
        raise typer.BadParameter("a dry run looks from the position on: leave out --from")
    project = Project.load()
    chosen = project.capture(name)
    if dry_run:
        _look(project, chosen, as_json=as_json)
        return
    if from_ is not None:
        _ask(project, chosen, from_, yes=yes)
    with Progress() as progress:
        result = _captured(project, chosen, _order(from_, reason), progress)
    if as_json:
        typer.echo(result.to_json())
    else:
        console.say(result.summary)


def _order(place: Literal["beginning", "end", "position"] | None, reason: str) -> "CaptureOrder":
    from frazil.capture.position import CaptureOrder
    from frazil.cli.operate.run import by_hand, new_run_id

    request = by_hand(new_run_id())
    return CaptureOrder(request.run, request.started_by, place, reason)


def _captured(project: "Project", chosen: "Capture", order: "CaptureOrder", progress: Progress) -> "CaptureResult":
    from frazil.capture.run import capture_files
    from frazil.pipeline.settings.capture import FileCapture

    progress.doing(f"{chosen.name}: capturing")
    if isinstance(chosen, FileCapture):
        return capture_files(project, chosen, order, progress.done)
    from frazil.spark.submit.submission import run_capture

    return run_capture(project, chosen, order, progress.done)


def _look(project: "Project", chosen: "Capture", *, as_json: bool) -> None:
    from frazil.capture.run import look_at_rows, preview_files
    from frazil.pipeline.settings.capture import FileCapture

    if not isinstance(chosen, FileCapture):
        rows = look_at_rows(project, chosen)
        if as_json:
            console.print_json({"capture": chosen.name, "rows": rows})
        else:
            console.say(f"{chosen.name}: all rows where {rows}" if rows else f"{chosen.name}: all rows")
        return
    files, remarks = preview_files(project, chosen)
    if as_json:
        console.print_json({"capture": chosen.name, "files": files, "said": remarks})
        return
    for line in remarks:
        console.say(f"{chosen.name}: {line}")
    for file in files:
        console.say(
            f"{file.path}: from byte {file.offset:,}, {file.size:,} bytes{' packed' if file.path.endswith('.gz') else ''}"
        )
    if not files:
        console.say(f"{chosen.name}: nothing new")


def _ask(project: "Project", chosen: "Capture", place: str, *, yes: bool) -> None:
    from frazil.capture.run import ground_of
    from frazil.cli.output.console import confirm

    position = ground_of(project, chosen).position()
    stands = (
        "it has no position" if position is None else f"it stands at transaction {position.n} in topic {position.topic}"
    )
    typer.echo(f"{chosen.name}: {stands}; it would go on from: {place}", err=True)
    confirm(yes=yes)
