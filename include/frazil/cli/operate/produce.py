"""`frazil produce`: send made-up records, or the lines of a file, to a topic."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.options import Json
from frazil.cli.output.progress import Progress
from frazil.errors import Terminal

if TYPE_CHECKING:
    from frazil.kafka.client.cluster import Cluster
    from frazil.kafka.client.record import OutgoingRecord
    from frazil.kafka.write.produce import Produced

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
