"""A run, maintenance and a condition with a value for every metric."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from frazil.batch.facts import UnknownFields
from frazil.capture.run import CaptureResult
from frazil.maintain.run import Figures, MaintenanceResult, StepOutcome, TableOutcome
from frazil.monitor.condition import Condition, Freshness, Retention, Runs, TopicLag
from frazil.pipeline.settings.capture import FileCapture
from frazil.run.batches.plan import RunResult

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)

RUN = RunResult(
    pipeline="orders",
    run="scheduled__1",
    batches=2,
    read=12,
    written=9,
    dead=2,
    filtered=1,
    dead_codes={"INVALID_JSON": 2},
    position={"orders.eu": [7, 5]},
    snapshots=(7136527834682345123,),
    seconds=4.25,
    rows={"shop.orders": 9},
    unknown_fields=UnknownFields(3, {"coupon": 3}),
    files={"shop.orders": 2},
    bytes={"shop.orders": 2_048},
    phases=(
        {"stage": 1.5, "audit": 0.01, "decide": 0.05, "forward": 0.1},
        {"stage": 1.0, "audit": 0.01, "redo": 2.0, "decide": 0.04, "forward": 0.08},
    ),
)

PROMISE = 600.0

BEFORE = Figures(score=60, files=40, bytes=4_000, small_files=38, delete_files=2, manifests=9, snapshots=30)
AFTER = Figures(score=98, files=2, bytes=3_900, small_files=1, delete_files=0, manifests=1, snapshots=21)

MAINTENANCE = MaintenanceResult(
    "orders",
    (
        TableOutcome(
            "shop.orders",
            "60: 38 small files",
            BEFORE,
            AFTER,
            (
                StepOutcome("compaction", "done", "38 small files", 12.5, {"rewritten": 38}),
                StepOutcome("manifests", "skipped", "9 of at least 20"),
                StepOutcome("expiry", "gave_way", "others changed the same files", 0.5),
            ),
        ),
    ),
    13.5,
)

CONDITION = Condition(
    pipeline="orders",
    owner="ana",
    read_at=NOW,
    n=8,
    last_commit=NOW - timedelta(seconds=90),
    complete_through=NOW - timedelta(seconds=30),
    unfinished=8,
    refusal="the topic was made anew",
    lag=700,
    lag_seconds=61.5,
    topics=(TopicLag("orders.eu", 600, 61.5), TopicLag("orders.us", 100, 20.0)),
    held_back=3,
    retention=(
        Retention("orders.eu", 0, 10, 3_600.0, 62.0),
        Retention("orders.us", 1, 900, None, 15.0),
        Retention("orders.eu", 2, -4, -20.0, 70.5),
    ),
    freshness=Freshness(2.0, 5.0, 9.5),
    open_letters=11,
    health={"shop.orders": 98},
    runs=Runs(is_paused=True, failures=2),
)

CAPTURE = FileCapture(capture="file", name="logs", topic="logs", paths=("/var/log/app.log",))
CAPTURED = CaptureResult("logs", "scheduled__1", "logs", records=5, transactions=1, n=4)
WAITING_FILES = Condition("capture.logs", "web", NOW, n=4, unit="files", lag=2, lag_bytes=40, lag_seconds=5.0)
