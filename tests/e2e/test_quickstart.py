"""docs/quickstart.md as its reader types it: the wheel, no checkout, a broker of their own, commands out of the page."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from frazil.devstack import stack
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.runtime import airflow_login
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from frazil.runtime.process import until
from tests.conftest import FreePorts
from tests.produce import produce
from tests.wheel import CHECKOUT_FILES, ROOT, NewUser, build_wheel

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANDED_SECONDS = 480
"""Bounds the wait for the schedule's first run, about 40 s on two idle cores."""


@pytest.fixture(scope="module")
def new_user(tmp_path_factory: pytest.TempPathFactory, free_ports: FreePorts, broker: str) -> Iterator[NewUser]:
    """The unpacked wheel, jars (linked, not fetched again), an empty home of its user, and 500 orders in Kafka."""
    fetch(Home.resolve(), "spark")
    folder, wheel = tmp_path_factory.mktemp("stranger"), tmp_path_factory.mktemp("wheel")
    shutil.unpack_archive(build_wheel(wheel), wheel / "site", "zip")
    (folder / ".frazil").mkdir()
    (folder / ".frazil" / "jars").symlink_to(Home.resolve().jars)
    topic = f"orders-{uuid4().hex}"
    assert create_topic(Cluster("mine", {"bootstrap.servers": broker}), topic, 3)
    values = [b"no order" if n % 100 == 7 else json.dumps({"id": n, "amount": n / 4}).encode() for n in range(500)]
    produce(Cluster("mine", {"bootstrap.servers": broker}), topic, [OutgoingRecord(None, value) for value in values])
    (port,) = free_ports(1)
    user = NewUser(
        folder,
        Path(sys.prefix),
        PYTHONPATH=str(wheel / "site"),
        FRAZIL_AIRFLOW_PORT=str(port),
        KAFKA=broker,
        TOPIC=topic,
    )
    try:
        yield user
    finally:
        stack.down(user.home)


def test_commands_see_no_file_of_the_checkout(new_user: NewUser) -> None:
    """What the quickstart reads besides the wheel are packages of the environment, and jars."""
    if new_user.mount_error:
        pytest.skip(f"the checkout stays readable, since nothing can be laid over it here: {new_user.mount_error}")

    assert new_user.types(CHECKOUT_FILES) == ""


@pytest.mark.timeout(1500)
def test_quickstart_leads_to_scheduled_pipeline(new_user: NewUser) -> None:
    """Its blocks, in their order, lead from files that do not exist yet to rows that the schedule landed, proven one by one."""
    write, look, switch_on, watch, down = BLOCK.findall((ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8"))

    assert "2 files, all usable" in new_user.types(write)
    assert "500 read" in (screen := new_user.types(look))
    assert "495 rows + 5 dead" in screen
    new_user.types(switch_on)
    with airflow_login.api(new_user.home) as api:
        assert until(lambda: any(run.state == "success" for run in api.runs("ingest__orders")), LANDED_SECONDS, 1)
    watched = new_user.types(watch)
    assert "airflow:scheduled" in watched
    assert "orders: clean, 500 records through batch 1" in watched
    assert "5 open dead letters" in watched
    new_user.types(down)
    assert not stack.status(new_user.home).is_running("airflow")
