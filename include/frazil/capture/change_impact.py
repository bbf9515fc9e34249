"""Effects of a changed capture file on its DAG, its position and what it sends: what the files tell, without Kafka or a source."""

from __future__ import annotations

from collections.abc import Iterator

from frazil.pipeline.files.folder import CaptureChange, Impact, source_of
from frazil.pipeline.settings.capture import Capture, JdbcCapture, dag_of


def capture_impact(change: CaptureChange) -> Iterator[Impact]:
    """Describe the effects of a change. The files don't show whether the capture ever ran, so refusals are warnings."""
    before, after = change.before, change.after
    if before is not None and (after is None or after.name != before.name):
        yield Impact("info", f"DAG {dag_of(before.unique_name)} goes; its runs stay in Airflow")
    if after is None:
        rest = "topic and position stay, and a file of the same name goes on where it ended"
        yield Impact("warning", f"nothing is captured any more; {rest}")
    elif before is None or after.name != before.name:
        yield Impact(
            "info", f"new DAG {dag_of(after.unique_name)}, every {after.interval}; it waits until it is unpaused"
        )
        yield Impact("info", _first_run(after))
    elif before.interval != after.interval:
        yield Impact(
            "info", f"DAG {dag_of(after.unique_name)} runs every {after.interval} instead of {before.interval}"
        )
    if keys := [str(key) for key in change.keys if key.path != "interval"]:
        yield Impact("info", "changed keys: " + "; ".join(keys))
    if before is not None and after is not None:
        yield from _on_position(change, before, after)


def _first_run(capture: Capture) -> str:
    source = "what is there already" if capture.start == "beginning" else "what comes from then on"
    return f"its first run captures {source} into topic {capture.topic}; of a topic that was written to it is refused"


def _on_position(change: CaptureChange, before: Capture, after: Capture) -> Iterator[Impact]:
    move = f"frazil capture {after.name} --from position|beginning|end --reason …"
    if before.name != after.name:
        yield Impact("warning", f"renamed from {before.name}, whose position it does not have; once it ran: {move}")
    if change.touches("cluster"):
        rest = (
            "a topic that is new there gets all of the source again, as start says; one that was written to is refused"
        )
        yield Impact("warning", f"another cluster has no position of it: {rest}, then: {move}")
    elif before.capture != after.capture or change.touches("topic"):
        yield Impact("warning", f"another kind of source or another topic is refused once it ran: {move}")
    elif _order(before) != _order(after):
        yield Impact("warning", f"other ordering columns are refused once it ran: {move}")
    elif source_of(before) != source_of(after) and isinstance(after, JdbcCapture):
        yield Impact(
            "warning", f"other rows are read from the same position on, none before it; for all of them: {move}"
        )
    if change.touches("start"):
        yield Impact("warning", f"start counts for the very first run only; later: {move}")


def _order(capture: Capture) -> tuple[str, ...]:
    return capture.order if isinstance(capture, JdbcCapture) else ()
