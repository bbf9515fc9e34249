"""Frazil as a side: the command `frazil run` with one of its engines, in a project of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from frazil.project import Project
from tests.bench.side_by_side import meter
from tests.bench.side_by_side.bench import MARK, Bench, server_ended
from tests.bench.side_by_side.sides import Drained, drained

_PIPELINES: Final = ("FRAZIL_PIPELINES", "FRAZIL_SETTINGS")


@dataclass(frozen=True)
class FrazilSide:
    """Frazil with an engine.

    Attributes:
        engine: `inline`, or an engine of `bench.SETTINGS`.
    """

    engine: str

    @property
    def name(self) -> str:
        """In words."""
        return f"Frazil, {self.engine}"

    def drain(self, bench: Bench, count: int, number: int) -> Drained:
        """Land the topic with one run."""
        folder = f"{self.engine}-{number}"
        named = bench.environment(folder, engine=self.engine) | {MARK: folder}
        with server_ended(named):
            self._warm_up(bench, named)
            with meter.measured(bench.broker_pid, lambda: meter.processes_with(MARK, folder)) as reading:
                output = run(bench.workload.name, self.engine, os.environ | named)
        assert json.loads(output)["written"] == count, output
        project = Project.load(named)
        table = project.lake_of(project.pipeline(bench.workload.name)).load_table(bench.workload.table)
        result = drained(reading, table, list(bench.workload.columns), count)
        shutil.rmtree(bench.root / folder)
        return result

    def _warm_up(self, bench: Bench, named: dict[str, str]) -> None:
        """Land the scratch topic where a server stays; the run starts its workers. The other engines start with each run."""
        if start_server(self.engine, named):
            scratch = bench.scratch
            variables = scratch.environment(f"{named[MARK]}-scratch", engine=self.engine)
            run(scratch.workload.name, self.engine, os.environ | named | {key: variables[key] for key in _PIPELINES})


def start_server(engine: str, named: dict[str, str]) -> bool:
    """Start the server of an engine that has a managed one; return whether it has."""
    settings = Project.load(named).settings.engines.get(engine)
    if settings is None or not settings.managed:
        return False
    subprocess.run([sys.executable, "-m", "frazil.cli", "up", "--only", "spark"], env=os.environ | named, check=True)
    return True


def command(pipeline: str, engine: str, *more: str) -> list[str]:
    """`frazil run PIPELINE --json` with an engine."""
    return [sys.executable, "-m", "frazil.cli", "run", pipeline, "--engine", engine, "--json", *more]


def run(pipeline: str, engine: str, env: dict[str, str]) -> str:
    """Run a pipeline once, to its end; what it says on stdout."""
    ran = subprocess.run(command(pipeline, engine), env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"frazil run ended with {ran.returncode}:\n{ran.stderr}"
    return ran.stdout
