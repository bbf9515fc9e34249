"""What the drills are: a trouble, what people must be told of it, and how its runbook ends it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from frazil.pipeline.models.alerts import Kind
from tests.integration.alerts import troubles
from tests.integration.alerts.desk import LETTERS, Desk

Deed = Callable[[Desk], None]


def nothing(_: Desk) -> None:
    """The runbook's commands do all."""


@dataclass(frozen=True)
class Drill:
    """A trouble.

    Attributes:
        kind: Of the alert.
        name: What happened.
        happen: Brings the pipeline into it, from its beginning.
        cause: Part of what people are told.
        next_step: Begin of what they are told to do.
        mend: What the runbook has them do besides typing commands.
        works: The later run that the runbook waits for, or what it must have led to.
        look: The look that tells them.
        looks: How many looks it takes.
        besides: Other kinds of alerts that it leads to.
        ends: Whether people are told that it is over.
        fixtures: What it needs besides.
    """

    kind: Kind
    name: str
    happen: Deed
    cause: str
    next_step: str
    mend: Deed = nothing
    works: Deed = nothing
    look: Callable[[Desk], list[dict[str, Any]]] = Desk.look
    looks: int = 1
    besides: frozenset[Kind] = field(default=frozenset())
    ends: bool = True
    fixtures: tuple[str, ...] = ()


DRILLS = (
    Drill("refused", "topic made anew", troubles.topic_recreated, "was recreated", "to read the new topic from offset 0"),
    Drill(
        "refused",
        "records lost",
        troubles.records_lost,
        r"records 10 to 14 were deleted by retention before they were read",
        "lengthen the topic's retention",
        besides=frozenset({"retention"}),
    ),
    Drill("refused", "letters dropped", troubles.dead_letters_dropped, LETTERS, "frazil repair orders|restore"),
    Drill("refused", "file broken", troubles.file_broken, "colour", "mend the file", mend=Desk.configure),
    Drill(
        "failed_run",
        "storage refuses",
        troubles.storage_refuses,
        "Run scheduled__1\n.*data",
        "",
        mend=troubles.storage_writes,
    ),
    Drill(
        "failed_run",
        "Airflow says how runs went",
        troubles.storage_refuses_and_airflow_says_so,
        "Run scheduled__1\n.*data",
        "",
        mend=troubles.storage_writes,
        works=troubles.run_cleared,
    ),
    Drill(
        "failed_run",
        "column renamed",
        troubles.column_renamed,
        r"Run scheduled__1\n.*does not fit its pipeline: \[FRZ-304\]\n  column name: declared string",
        "change the columns of the pipeline file, or alter the table",
        besides=frozenset({"refused"}),
        mend=lambda desk: troubles.rename(desk, "label", "name"),
    ),
    Drill(
        "tolerance",
        "producer broken",
        troubles.producer_broken,
        r"300 of 1000 records \(30.0%\)",
        "fix the producer",
        mend=lambda desk: desk.configure("dead_letters: {tolerance: {max_rate: 0.5}}"),
    ),
    Drill("conflict", "rival at work", troubles.rival_at_work, "4 batches were refused", "frazil history orders"),
    Drill(
        "stale",
        "no run begins",
        troubles.no_run_begins,
        r"30 min( \d+ s)? before .* freshness objective is 20 min",
        "frazil history orders",
    ),
    Drill(
        "lag",
        "much arrives",
        troubles.much_arrives,
        "190 records are not read yet; the limit is 100",
        "frazil lag orders",
    ),
    Drill(
        "lag_growing",
        "more arrives than is read",
        troubles.more_arrives_than_is_read,
        "10, 20, 30",
        "frazil lag orders",
    ),
    Drill(
        "retention",
        "retention is near",
        troubles.retention_is_near,
        "(9|10) min .*left until unread records are deleted",
        "kafka-configs.sh",
    ),
    Drill(
        "failed_maintenance",
        "manifests gone",
        troubles.manifests_gone,
        "Run scheduled__1\n.*",
        "",
        mend=troubles.storage_back,
        works=troubles.maintenance,
    ),
    Drill(
        "failed_report",
        "manifests gone",
        troubles.report_fails,
        "Run scheduled__1\n.*orders__dead_letters",
        "",
        mend=troubles.dead_letters_restored,
        works=troubles.report_works,
    ),
    Drill(
        "failed_replay",
        "manifests gone",
        troubles.replay_fails,
        "Run scheduled__1\n.*orders__dead_letters",
        "",
        mend=troubles.dead_letters_restored,
        works=troubles.replay_works,
    ),
    Drill(
        "unreadable",
        "catalog away",
        troubles.catalog_away,
        "unable to open database file",
        "",
        mend=troubles.catalog_back,
        looks=3,
    ),
    Drill(
        "unreadable",
        "broker stopped",
        troubles.broker_stopped,
        "no broker of Kafka cluster 'local'",
        "start the embedded broker with `frazil up --only kafka`",
        looks=3,
        fixtures=("own_broker",),
    ),
    Drill(
        "dead_letters",
        "records refused",
        troubles.records_refused,
        "3 of 3 are open",
        "frazil dead-letters list orders",
        mend=Desk.configure,
        works=troubles.all_landed,
        look=troubles.dead_letters_reported,
        ends=False,
    ),
)
