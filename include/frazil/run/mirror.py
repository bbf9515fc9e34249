"""The Kafka consumer group that shows the position to lag tools."""

from __future__ import annotations

from frazil.batch.position import Position
from frazil.errors import FrazilError
from frazil.kafka.group import mirror_offsets
from frazil.run.scope import Scope


def mirror_position(scope: Scope, position: Position | None) -> None:
    """Write the position into the pipeline's consumer group. It is never read back.

    Args:
        scope: The pipeline and its doors.
        position: The position as the caller saw or moved it last; None before the first run.

    Best effort: the batches are in, and a group that somebody consumes with, or that may not be written, must not make
    their run fail. Whoever watches hears of it.
    """
    group = scope.pipeline.consumer_group
    if group is None:
        return
    try:
        topics = position.topics if position is not None else {}
        offsets = {(name, number): at for name, topic in topics.items() for number, at in enumerate(topic.next)}
        mirror_offsets(scope.cluster, group, offsets)
    except FrazilError as error:
        scope.report(f"consumer group {group} could not be moved to the position: {error.message}")
