"""A demo that is ended early, and the lines that it proposes to its reader."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from frazil.cli.demo.demo import PIPELINE, TOUR
from frazil.devstack import stack
from frazil.runtime.home import PORT_VARIABLES, Home, project_root
from tests.integration.cli.conftest import make_place

_SECONDS = 120


def test_a_demo_that_is_ended_early_leaves_no_process(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    """A closed terminal or an impatient CI system must not leave a broker and half an Airflow behind."""
    env = os.environ | {
        "PYTHONPATH": str(project_root() / "include"),
        "FRAZIL_HOME": str(tmp_path / "home"),
        "FRAZIL_JARS": str(Home.resolve().jars),
    }
    env |= {
        name: str(port) for name, port in zip(PORT_VARIABLES.values(), free_ports(len(PORT_VARIABLES)), strict=True)
    }
    command = [sys.executable, "-m", "frazil.cli", "demo"]
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as demo:
        output = ""
        for line in demo.stderr or ():
            output += line
            if "starting the API server" in line:
                demo.send_signal(signal.SIGTERM)
        code = demo.wait(_SECONDS)

    assert "kafka: ready" in output
    assert "stopped: kafka, airflow" in output
    assert code == 128 + signal.SIGTERM
    assert {component.state for component in stack.status(Home.resolve(env)).components} == {"stopped"}
    assert json.loads((tmp_path / "home" / "stack.json").read_text(encoding="utf-8"))["ports"]["kafka"] > 0
    assert not (tmp_path / "home" / "run" / "demo.json").exists()


def test_each_line_of_the_tour_works_as_pasted(tmp_path: Path, broker: str) -> None:
    """The first sends orders, the others show what became of them."""
    place = make_place(tmp_path, broker)
    shutil.copy(project_root() / "include" / "pipelines" / f"{PIPELINE}.yaml", tmp_path / "pipelines")
    sends, *shows = [shlex.split(line)[1:] for _, line in TOUR]

    place.succeed(*sends)
    place.succeed("run", PIPELINE, "--engine", "inline")

    printed = [place.succeed(*line).stdout for line in shows]
    assert all(printed)
    assert "clean" in printed[2]
