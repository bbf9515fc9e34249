"""`frazil run` over records that are 30,000 times as large as what the broker holds of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.kafka.cluster import Cluster
from frazil.kafka.topics import create_topic

MOST_KBYTES = 1_000_000

COUNTS = [pytest.param(8, id="8"), pytest.param(56, marks=pytest.mark.full, id="56")]


def send_bombs(cluster: Cluster, topic: str, count: int) -> None:
    """Records of 100 MB of zeros each, in batches of their own, then a batch that is too large, and a good record."""
    bounds = {"message.max.bytes": 1_000_000_000, "queue.buffering.max.kbytes": 2_000_000, "batch.size": 300_000_000}
    producer = Producer({**cluster.properties, **bounds, "compression.type": "zstd", "linger.ms": 60_000})
    bomb = bytes(100_000_000)
    for _ in range(count):
        producer.produce(topic, bomb, partition=0)
        producer.flush()
    for _ in range(2):  # one batch
        producer.produce(topic, bomb, partition=0)
    producer.flush()
    producer.produce(topic, b'{"id": "a", "amount": 1}', partition=0)
    producer.flush()


MEASURE = """
import resource, subprocess, sys
ended = subprocess.run([sys.executable, "-m", "frazil.cli", *sys.argv[1:]], stdout=sys.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(ended.returncode)
"""
"""A process between: Linux counts the memory of whoever started a command as the command's, and a test process is large."""


def memory_of(place: Any, *arguments: str) -> int:
    """The most memory that a command, or a process of its own, had: VmHWM, in kB."""
    ended = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], env=place.environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


@pytest.mark.parametrize("count", COUNTS)
def test_records_of_100_mb_become_dead_letters_in_bounded_memory(place: Any, cluster: Cluster, count: int) -> None:
    """Each is a dead letter with code, coordinates and size, the good record is a row, and the check agrees."""
    create_topic(cluster, place.topic, 1)
    send_bombs(cluster, place.topic, count)
    memory = memory_of(place, "run", "orders")
    checking = memory_of(place, "verify", "orders")
    letters = place.json("dead-letters", "list", "orders", "--limit", "100")

    assert memory < MOST_KBYTES
    assert checking < MOST_KBYTES
    assert sorted(letter["offset"] for letter in letters) == list(range(count + 2))
    too_large = [letter for letter in letters if letter["code"] == "RECORD_TOO_LARGE"]
    assert sorted(letter["offset"] for letter in too_large) == list(range(count))
    assert all(letter["message"].startswith("100,000,000 bytes") for letter in too_large)
    assert {letter["code"] for letter in letters if letter not in too_large} == {"UNREADABLE_BATCH"}
