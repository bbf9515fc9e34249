"""Ask again while a cluster changes: partitions without a leader, groups without a coordinator, topics that come and go."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from frazil.errors import Retryable
from frazil.kafka.failure import is_moving

_SECONDS: Final = 5.0
"""Bounds waiting for a leader or coordinator, usually well below a second. With the one request that
may start just before it ends, REQUEST_SECONDS long at most, the caller hears within 15 s."""

_WAIT_SECONDS: Final = 0.1


class Changed(Retryable):
    """A topic or partition was there at one question and not at the next: only asking anew tells what is there."""


def while_changing() -> Retrying:
    """Repeat a question as long as it fails for what passes by itself within moments."""
    return Retrying(
        retry=retry_if_exception(_passes),
        stop=stop_after_delay(_SECONDS),
        wait=wait_fixed(_WAIT_SECONDS),
        reraise=True,
    )


def _passes(error: BaseException) -> bool:
    moving = isinstance(error.__cause__, KafkaException) and is_moving(error.__cause__)
    return moving or isinstance(error, Changed)
