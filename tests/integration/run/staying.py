"""What tests of sessions share: a pipeline that stays, a clock that ends a session, what lands its plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from frazil.batch.plan import RunPlan, session_order
from frazil.batch.position import RunRequest
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project
from frazil.run.batches import session as sessions
from frazil.run.batches.session import Session, inline_lander
from tests.integration.conftest import Shop, environment

MakeShop = Callable[..., Any]

FILE = """
name: orders
source: {{topics: [{topic}]}}
interval: {interval}
session_for: 10m
engine: {engine}
destinations: [{{table: shop.orders, columns: {{id: long, name: string}}}}]
"""


def staying(shop: Shop, interval: str = "1s", engine: str = "inline") -> Shop:
    return shop.with_pipeline(FILE.format(topic=shop.topic, interval=interval, engine=engine))


class Clock:
    """The time, until a test says that the session is over."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        """Tell it."""
        return datetime.now(UTC) + self.ahead

    def end(self) -> None:
        """All sessions are over."""
        self.ahead = timedelta(hours=1)


@contextmanager
def session(
    orders: Shop, clock: Clock, lines: list[str] | None = None, seconds: float = 600, *, in_job: bool = False
) -> Iterator[Session]:
    """A session that ends when the clock says so, or after so many seconds."""
    clock.ahead = timedelta()

    def load() -> tuple[Project, Pipeline]:
        project = Project.load(environment(orders.project))
        return project, project.pipeline("orders")

    now = datetime.now(UTC)
    order = session_order("orders", RunRequest("stays", reason="a test"), now, now + timedelta(seconds=seconds))
    session = Session(order, load, print if lines is None else lines.append, clock, in_job=in_job)
    yield session


def landing(actions: Mapping[int, Callable[[], object]]) -> sessions.Land:
    """Lands every plan in this process, and does something behind the n-th one."""
    land, times = inline_lander(print), Counter[str]()

    def landed(project: Project, pipeline: Pipeline, plan: RunPlan) -> bool:
        done = land(project, pipeline, plan)
        times["landed"] += 1
        actions.get(times["landed"], lambda: None)()
        return done

    return landed
