"""Detects truncated logs: compares a position's leader epoch with the present leader's log."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final

from confluent_kafka import OFFSET_END, KafkaError, TopicPartition

from frazil.error_codes import KAFKA_FAILED
from frazil.errors import Retryable
from frazil.kafka.client.client import REQUEST_SECONDS, ErrorLog, consumer
from frazil.kafka.client.cluster import Cluster
from frazil.kafka.client.errors import reasons, translate
from frazil.kafka.client.messages import Place, place_of

_SECONDS: Final = 3 * REQUEST_SECONDS
"""Bounds the wait for the next answer: it comes with the first batch of records behind a position, perhaps on a slow link."""

_POLL_SECONDS: Final = 0.1

_HELD: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._BAD_COMPRESSION})
"""What the client says, beside handing out a record, of a partition that it reads: the end, and what it can't unpack."""

_END: Final = re.compile(r"broker end offset is (-1|\d+)")
"""Where the log of an epoch ends, in the client's error of a truncated log; -1 if the leader does not know the epoch. It is
told in words only: other words would be an error that a person sees."""


def truncations(cluster: Cluster, read: Mapping[Place, tuple[int, int]]) -> dict[Place, int | None]:
    """Find logs that were truncated below the position, as by an unclean leader election (KIP-320).

    The client asks the leader where the log of an epoch ends when a consumer seeks an offset with an epoch in a partition
    that it reads. So each is first read at its end, which is in the log whatever the position is.

    Per partition it takes the next offset to read, and a leader epoch that no record before it is beyond. It returns
    where the log of the epoch ends; None if the log does not know it.
    """
    if not read:
        return {}
    complaints, log_ends, sought, waiting = ErrorLog(), dict[Place, int | None](), set[Place](), {*read}
    # A long range of aborted records would be silence under `read_committed`.
    client = consumer(cluster, complaints, committed=False)
    try:
        client.assign([TopicPartition(*place, OFFSET_END) for place in read])
        deadline = time.monotonic() + _SECONDS
        while waiting:
            event = client.poll(_POLL_SECONDS)
            if event is None or event.topic() is None or (place := place_of(event)) not in waiting:
                if time.monotonic() > deadline:
                    raise _unanswered(cluster, read, min(waiting), complaints)
                continue
            deadline, error = time.monotonic() + _SECONDS, event.error()
            if error is not None and (end := _END.search(error.str())) is not None:
                log_ends[place] = int(end[1]) if end[1] != "-1" else None
            elif error is not None and error.code() not in _HELD:
                raise translate(error, cluster, complaints, topic=place[0], partition=place[1])
            elif place not in sought:
                sought.add(place)
                offset, epoch = read[place]
                client.seek(TopicPartition(*place, offset, leader_epoch=epoch))
                continue
            waiting.remove(place)
            client.pause([TopicPartition(*place)])
    finally:
        client.close()
    return log_ends


def _unanswered(
    cluster: Cluster, read: Mapping[Place, tuple[int, int]], place: Place, complaints: ErrorLog
) -> Retryable:
    offset, epoch = read[place]
    return KAFKA_FAILED.retryable(
        f"{cluster}, topic {place[0]!r}, partition {place[1]}: its leader did not say within {_SECONDS:.0f} s whether the log"
        f" still holds what was read up to offset {offset} in leader epoch {epoch}{reasons(cluster, complaints)}",
        next_step="try again; if it persists, check the broker that leads the partition",
    )
