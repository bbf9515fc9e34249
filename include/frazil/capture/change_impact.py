"""Effects of a changed capture file on its DAG, its position and its records, as far as the files alone show them."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.pipeline.files.folder import CaptureChange, Impact, source_of
from frazil.pipeline.settings.capture import Capture, JdbcCapture, dag_of


def capture_impact(change: CaptureChange) -> Iterator[Impact]:
    """Describe the effects of a change. The files don't show whether the capture ever ran, so refusals are warnings."""
    before, after = change.before, change.after
    if before is not None and (after is None or after.name != before.name):
        yield Impact("info", f"DAG {dag_of(before.unique_name)} is removed; its runs stay in Airflow")
    if after is None:
        rest = "topic and position stay, and a capture of the same name would continue at the position"
        yield Impact("warning", f"nothing is captured any more; {rest}")
    elif before is None or after.name != before.name:
        dag = dag_of(after.unique_name)
        yield Impact("info", f"new DAG {dag}, every {after.interval}; it waits until it is unpaused")
        yield Impact("info", _first_run(after))
    elif before.interval != after.interval:
        dag = dag_of(after.unique_name)
        yield Impact("info", f"DAG {dag} runs every {after.interval} instead of {before.interval}")
    if keys := [str(key) for key in change.keys if key.path != "interval"]:
        yield Impact("info", "changed keys: " + "; ".join(keys))
    if before is not None and after is not None:
        yield from _position_impact(change, before, after)


def _first_run(capture: Capture) -> str:
    source = "all present lines or rows" if capture.start == "beginning" else "only new lines or rows"
    return (
        f"its first run captures {source} into topic {capture.topic}, and is refused if the topic has records already"
    )


def _position_impact(change: CaptureChange, before: Capture, after: Capture) -> Iterator[Impact]:
    command = f"frazil capture {after.name} --from position|beginning|end --reason …"
    if before.name != after.name:
        yield Impact(
            "warning", f"renamed from {before.name}, whose position it does not have; if that one ran: {command}"
        )
    if change.touches("cluster"):
        rest = "if its topic is new there, the capture begins as start says; else its runs are refused"
        yield Impact("warning", f"the other cluster has no position of this capture: {rest}, then: {command}")
    elif before.capture != after.capture or change.touches("topic"):
        yield Impact("warning", f"if it ran already, another kind of source or another topic is refused: {command}")
    elif _order(before) != _order(after):
        yield Impact("warning", f"if it ran already, other ordering columns are refused: {command}")
    elif source_of(before) != source_of(after) and isinstance(after, JdbcCapture):
        yield Impact("warning", f"of the other source, only rows after the position are read; for all rows: {command}")
    if change.touches("start"):
        yield Impact("warning", f"start counts for the very first run only; later: {command}")


def _order(capture: Capture) -> tuple[str, ...]:
    return capture.order if isinstance(capture, JdbcCapture) else ()
