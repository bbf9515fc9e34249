"""`frazil stop`, and what Ctrl-C at a terminal means, with a real run at work."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from frazil.errors import Retryable, Stopped
from tests.signals import hearing_ctrl_c

Place = Any
"""A project of its own: `place.frazil(...)` runs the command in it. See conftest."""

RECORDS = 4_000


def begin(place: Place) -> subprocess.Popen[str]:
    """A run of two hundred batches that has finished the first one."""
    place.succeed("produce", place.topic, "--generate", "payments", "--count", str(RECORDS))
    file = place.root / "pipelines" / "orders.yaml"
    file.write_text(f"{file.read_text()}\nlimits: {{max_records: 20}}\n")
    command = [sys.executable, "-m", "frazil.cli", "run", "orders"]
    with hearing_ctrl_c():
        run = subprocess.Popen(command, env=place.environment, stderr=subprocess.PIPE, text=True)
    assert next((line for line in run.stderr or () if "finished" in line), None) is not None
    return run


def assert_carried_on(place: Place) -> None:
    """The next run lands the rest, once."""
    ((landed,),) = [row.values() for row in place.json("sql", "SELECT count(*) AS n FROM shop.orders")]
    assert 0 < landed < RECORDS
    file = place.root / "pipelines" / "orders.yaml"
    file.write_text(file.read_text().replace("max_records: 20}", "max_records: 100000}"))
    place.succeed("run", "orders")
    rows = place.json("sql", "SELECT count(*) AS n, count(DISTINCT id) AS d FROM shop.orders")
    assert rows == [{"n": RECORDS, "d": RECORDS}]


def test_stop_command_ends_run_without_losing_records(place: Place) -> None:
    """`frazil stop` returns when the run has ended; a second one finds nothing, and the next run lands the rest once."""
    with begin(place) as run:
        result = place.json("stop", "orders")
        errors = run.communicate(timeout=60)[1]

    assert run.returncode == Stopped.exit_code, errors
    assert "stopped: asked to stop by SIGTERM" in errors
    assert result["failed_runs"] == []
    assert len(result["stopped"]) == 1
    assert result["stopped"][0].startswith("cli__")
    assert place.succeed("stop", "orders").stdout == "orders: no run is at work\n"
    assert_carried_on(place)


def test_unreachable_airflow_does_not_keep_local_runs_alive(place: Place) -> None:
    """Where the named Airflow does not answer, what runs on this machine ends all the same, and the command says what it missed."""
    nobody = "http://127.0.0.1:9"
    with begin(place) as run:
        result = place.frazil("stop", "orders", FRAZIL_AIRFLOW_URL=nobody, FRAZIL_AIRFLOW_PASSWORD="unused")
        errors = run.communicate(timeout=60)[1]

    assert run.returncode == Stopped.exit_code, errors
    assert result.returncode == Retryable.exit_code, result.stderr
    assert f"(process {run.pid}) ended" in result.stdout
    assert nobody in result.stderr


SCRIPT = """
import time
from frazil.runtime.drivers import registered
from frazil.runtime.home import Home
with registered(Home.resolve(), "orders", "here", print):
    print("at work", flush=True)
    time.sleep(600)
"""


def test_run_in_another_container_is_waited_for(place: Place) -> None:
    """The home that it shares tells of it, though its pid is nobody's here: the command returns when that has ended, too."""
    elsewhere = {"pid": 7, "start_ticks": 1, "host": "scheduler", "pipeline": "orders", "run": "elsewhere"}
    piped = {"env": place.environment, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], **piped) as process:
        assert next(process.stdout, None) == "at work\n"
        with (place.root / "home" / "drivers" / "orders-elsewhere.json").open("w") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)
            lock_file.write(json.dumps(elsewhere))
            lock_file.flush()
            with subprocess.Popen([sys.executable, "-m", "frazil.cli", "stop", "orders"], **piped) as stop:
                assert process.wait(60) == -signal.SIGTERM
                with pytest.raises(subprocess.TimeoutExpired):
                    stop.wait(1)
                lock_file.close()
                output = stop.communicate(timeout=60)[0]

    assert stop.returncode == 0
    assert f"orders: run here (process {process.pid}) ended in " in output
    assert "orders: run elsewhere (process 7 on scheduler) ended in " in output


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.full)])
def test_ctrl_c_ends_run_in_order(place: Place, number: signal.Signals) -> None:
    """Ctrl-C and a closed terminal end a run in order, too."""
    with begin(place) as run:
        run.send_signal(number)
        errors = run.communicate(timeout=60)[1]

    assert run.returncode == Stopped.exit_code, errors
    assert f"asked to stop by {number.name}" in errors
    assert_carried_on(place)


def test_stop_of_unknown_pipeline_is_refused(place: Place) -> None:
    """A wrong name is refused with the nearest one, instead of saying that nothing runs."""
    ended = place.frazil("stop", "order")

    assert ended.returncode == 78
    assert "did you mean 'orders'" in ended.stderr
