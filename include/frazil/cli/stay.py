"""`frazil run --stay`: a session in a terminal, as Airflow's runs of a pipeline with `session_for` are."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from frazil.cli.progress import Progress

if TYPE_CHECKING:
    from frazil.batch.plan import RunPlan
    from frazil.batch.request import RunRequest
    from frazil.pipeline.model import Pipeline
    from frazil.run.result import RunResult
    from frazil.run.session import Session


def order_of(pipeline: str, request: "RunRequest", length: str) -> "RunPlan":
    """What a session is started with.

    Args:
        pipeline: Name of the pipeline.
        request: Id of the run, and who asks.
        length: How long it stays, such as ``10m``.

    Raises:
        Terminal: That is no duration.
    """
    from frazil.batch.session import session_order
    from frazil.errors import Terminal
    from frazil.pipeline.interval import parse_duration

    now = datetime.now(UTC)
    try:
        until = now + parse_duration(length)
    except ValueError as error:
        raise Terminal(f"--stay: {error}", next_step="say how long, such as 90s, 10m or 1h") from error
    return session_order(pipeline, request, now, until)


def stayed(order: "RunPlan", engine: str | None, progress: Progress) -> "RunResult":
    """Land batches until the session ends, and tell what the ledger says of them.

    Args:
        order: By `order_of`.
        engine: In place of the pipeline's own; None for that.
        progress: Shows a line per phase.

    Raises:
        Stopped: A signal asked it to stop.
        Terminal: A person must act.
        Retryable, OutcomeUnknown: What a tick failed for, again and again.
    """
    from frazil.project import Project
    from frazil.run.result import run_result
    from frazil.run.session import Session

    def load() -> "tuple[Project, Pipeline]":
        project = Project.load()
        pipeline = project.pipeline(order.pipeline)
        return project, pipeline if engine is None else pipeline.model_copy(update={"engine": engine})

    session = Session(order, load, progress.done)
    progress.done(f"{order.pipeline}: staying until {order.until}, a batch every {session.pipeline.interval}")
    progress.doing(f"{order.pipeline}: waiting for records")
    _serve(session, progress)
    return run_result(session.project, session.pipeline, order.run)


def _serve(session: "Session", progress: Progress) -> None:
    from frazil import stopping
    from frazil.run.session import inline_lander, serve
    from frazil.spark.submit.submission import run_spark
    from frazil.spark.submit.watch import STOP_SECONDS

    def submit(plan: "RunPlan") -> str | None:
        return run_spark(session.project, session.pipeline, plan, progress.done)

    with stopping.heeded(progress.done, STOP_SECONDS):  # also what was asked while a job was about to end by itself
        serve(session, inline_lander(progress.done), submit)
