"""`frazil run` over records that are 30,000 times as large as what the broker holds of them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from confluent_kafka import Producer

from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch

MOST_KBYTES = 1_000_000

FORMS = [
    pytest.param(8, "inline", id="8"),
    pytest.param(56, "inline", id="56", marks=pytest.mark.full),
    pytest.param(56, "spark", id="56 by spark-submit", marks=pytest.mark.full),
]


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


def memory_of(place: Any, *arguments: str) -> int:
    """The most memory that a Python process of a command had: VmHWM, in kB. A JVM has bounds of its own."""
    errors, most = place.root / "errors.txt", 0
    command = [sys.executable, "-m", "frazil.cli", *arguments]
    with (
        errors.open("wb") as stream,
        subprocess.Popen(command, env=place.environment, stdout=stream, stderr=stream) as run,
    ):
        while run.poll() is None:
            most = max(most, *(peak_of(pid) for pid in descendants(run.pid)))
            sleep(0.05)
    assert run.returncode == 0, errors.read_text(encoding="utf-8")
    return most


def descendants(pid: int) -> list[int]:
    """A process and all that it started, as far as they still run."""
    pids = [pid]
    for parent in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                pids += map(int, children.read_text().split())
    return pids


def peak_of(pid: int) -> int:
    """The most memory that a Python process had, in kB; 0 for any other."""
    try:
        fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields["VmHWM"].split()[0]) if "python" in fields["Name"] and "VmHWM" in fields else 0


@pytest.mark.parametrize(("count", "engine"), FORMS)
def test_records_of_100_mb_become_dead_letters_in_bounded_memory(
    place: Any, cluster: Cluster, count: int, engine: str
) -> None:
    """Each is a dead letter with code, coordinates and size, the good record is a row, and the check agrees."""
    if engine == "spark":
        fetch(Home.resolve(), "spark")
    file = place.root / "pipelines" / "orders.yaml"
    file.write_text(file.read_text().replace("engine: inline", f"engine: {engine}"))
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
