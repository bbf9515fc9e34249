"""Commands that send records to topics: `frazil produce` sends generated records or lines of a file, `frazil capture` new
lines of files or new rows of a database.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json, Progress, Yes, confirm
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
Generate = Annotated[Literal["pizzas", "payments"] | None, typer.Option(help="Send generated records of this kind.")]
Count = Annotated[int | None, typer.Option(min=1, help="Number of generated records.")]
Broken = Annotated[int, typer.Option(min=0, max=1000, help="Broken records in every thousand generated ones.")]
Seed = Annotated[int | None, typer.Option(help="The same seed generates the same records.", show_default="random")]
Lines = Annotated[
    Path | None, typer.Option("--file", metavar="LINES", help="Send each line of this file as one record.")
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=TEXT", help="Add this header to each record. May be repeated."),
]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Records per second.", show_default="as fast as possible")]
Partitions = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Create the topic with this number of partitions, unless it exists.",
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
    """Send records to a topic: generated ones, or the lines of a file.

    Give either [cyan]--generate[/cyan] with [cyan]--count[/cyan], or [cyan]--file[/cyan]. The producer is idempotent and waits
    until all in-sync replicas have each record, so no record is lost or sent twice.
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
        # The topic is missing, or access is refused; then creating it is refused too, with the reason.
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
            raise typer.BadParameter("needs --generate; a file is always sent whole", param_hint="--count")
        return lines(file)
    if count is None:
        raise typer.BadParameter("give the number of records to generate", param_hint="--count")
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
        help="Continue elsewhere. beginning: capture everything again. end: capture only what is added from now on."
        " position: keep the position, although the topic is another one now.",
        show_default="the position",
    ),
]
Why = Annotated[
    str,
    typer.Option(
        "--reason", metavar="TEXT", help="The reason for --from, stored with the position.", show_default=False
    ),
]


def capture(
    name: CaptureName,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be captured. Send and create nothing.")
    ] = False,
    from_: From = None,
    reason: Why = "",
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Run a capture once: send the new lines of its files, or the new rows of its database, to its topic.

    Records and position are committed in one Kafka transaction, so each line or row is sent once. After a killed run, the
    next one continues at the position. A new run of a capture ends an older one that is still at work.
    """
    from frazil.project import Project

    if (from_ is None) != (not reason):
        raise typer.BadParameter("--from and --reason need each other: the reason is stored with the position")
    if dry_run and from_ is not None:
        raise typer.BadParameter("a dry run always begins at the position: remove --from")
    project = Project.load()
    chosen = project.capture(name)
    if dry_run:
        _preview(project, chosen, as_json=as_json)
        return
    if from_ is not None:
        _confirm_start(project, chosen, from_, yes=yes)
    with Progress() as progress:
        result = _run(project, chosen, _order(from_, reason), progress)
    if as_json:
        typer.echo(result.to_json())
    else:
        console.say(result.summary)


def _order(start: Literal["beginning", "end", "position"] | None, reason: str) -> "CaptureOrder":
    from frazil.capture.position import CaptureOrder
    from frazil.cli.operate.run import manual_request

    request = manual_request()
    return CaptureOrder(request.run, request.started_by, start, reason)


def _run(project: "Project", chosen: "Capture", order: "CaptureOrder", progress: Progress) -> "CaptureResult":
    from frazil.capture.run import capture_files
    from frazil.pipeline.settings.capture import FileCapture

    progress.doing(f"{chosen.name}: capturing")
    if isinstance(chosen, FileCapture):
        return capture_files(project, chosen, order, progress.done)
    from frazil.spark.submit.submission import run_capture

    return run_capture(project, chosen, order, progress.done)


def _preview(project: "Project", chosen: "Capture", *, as_json: bool) -> None:
    from frazil.capture.run import preview_files, preview_rows
    from frazil.pipeline.settings.capture import FileCapture

    if not isinstance(chosen, FileCapture):
        condition = preview_rows(project, chosen)
        if as_json:
            console.print_json({"capture": chosen.name, "rows": condition})
        else:
            console.say(f"{chosen.name}: all rows where {condition}" if condition else f"{chosen.name}: all rows")
        return
    files, remarks = preview_files(project, chosen)
    if as_json:
        console.print_json({"capture": chosen.name, "files": files, "said": remarks})
        return
    for line in remarks:
        console.say(f"{chosen.name}: {line}")
    for file in files:
        console.say(
            f"{file.path}: from byte {file.offset:,}, {file.size:,} bytes{' compressed' if file.path.endswith('.gz') else ''}"
        )
    if not files:
        console.say(f"{chosen.name}: nothing new")


def _confirm_start(project: "Project", chosen: "Capture", start: str, *, yes: bool) -> None:
    from frazil.capture.run import capture_context

    position = capture_context(project, chosen).position()
    present = (
        "it has no position" if position is None else f"its position is transaction {position.n} of {position.topic}"
    )
    console.err().print(f"{chosen.name}: {present}; it would continue from: {start}", soft_wrap=True)
    confirm(yes=yes)
