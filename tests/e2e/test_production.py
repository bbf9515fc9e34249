"""The production profile from the command line: up, land, hit, land again, down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from frazil.devstack import spark_cluster, stack
from frazil.errors import Retryable
from frazil.failpoints import VARIABLE, Failpoint
from frazil.kafka.admin.topics import create_topic
from frazil.runtime.home import Home
from frazil.runtime.process import Processes, session_members
from tests.integration.devstack.conftest import processes_naming
from tests.production import cluster_of, lacking, production_home

pytestmark = [
    pytest.mark.tried("Spark standalone cluster", "real"),
    pytest.mark.e2e,
    pytest.mark.full,
    pytest.mark.timeout(900),
]  # seven minutes; `make test-production` is on these parts

NEEDED = ("postgres", "s3", "catalog", "kafka", "cluster")
"""Airflow and the registry would double the time, and have tests of their own."""

COUNT = 600


class Shell:
    """Somebody's shell, in which the home is named and nothing else."""

    def __init__(self, home: Home) -> None:
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("FRAZIL_")},
            "FRAZIL_HOME": str(home.root),
            "FRAZIL_JARS": str(home.jars),
        }

    def frazil(self, *arguments: str, code: int = 0, **env: str) -> str:
        """Run a command; what it said."""
        command = [sys.executable, "-m", "frazil.cli", *arguments]
        done = subprocess.run(command, env=self.env | env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture
def home() -> Iterator[Home]:
    """An empty home in the profile; the test is skipped where the machine lacks a part."""
    if (what := lacking(Home.resolve().jars)) is not None:
        pytest.skip(what)
    with production_home() as home:
        yield home


def kill(processes: Processes, name: str) -> None:
    """End a component and everything of its session outright."""
    process = processes.record(name)
    assert process is not None
    for member in [*session_members(process.pid)]:
        os.kill(member.pid, signal.SIGKILL)


def test_production_profile_loses_doubles_and_leaves_nothing(home: Home) -> None:
    """TLS, passwords, REST, S3 and a Spark cluster carry a pipeline through a killed driver and a killed worker; down ends all."""
    shell, processes = Shell(home), stack.processes_of(home)
    stack.up(home, NEEDED, print)
    create_topic(cluster_of(home), "payments", 2)
    shell.frazil("run", "payments")  # nothing to land: the position begins
    make = ("produce", "payments", "--generate", "payments")

    shell.frazil(*make, "--count", str(COUNT), "--seed", "1")
    shell.frazil("run", "payments", code=Retryable.exit_code, **{VARIABLE: f"{Failpoint.DECIDE_COMMITTED}=kill"})
    kill(processes, spark_cluster.worker(0))
    shell.frazil(*make, "--count", str(COUNT), "--seed", "2")
    shell.frazil("run", "payments")  # finishes the first batch, and lands the second with one worker
    shell.frazil("up", "--only", "cluster")

    counted = "select count(*) n, count(distinct (_kafka_partition, _kafka_offset)) places from orders.payments"
    assert json.loads(shell.frazil("sql", counted, "--json")) == [{"n": 2 * COUNT, "places": 2 * COUNT}]
    assert "clean" in shell.frazil("verify", "payments")
    assert stack.status(home).is_running("cluster")
    secret_files = (home.production / "passwords.json", home.production / "kafka" / "users.json")
    secrets = [secret for file in secret_files for secret in json.loads(file.read_text()).values()]
    log_text = "".join(path.read_text(errors="replace") for path in home.logs.iterdir())
    assert not [secret for secret in secrets if secret in log_text]
    assert not [line for line in processes_naming(home.root) if any(secret in line for secret in secrets)]
    shell.frazil("down")
    assert processes_naming(home.root) == []
