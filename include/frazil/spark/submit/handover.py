"""Files that pass the plan to a job, private configuration to Spark, and the result back."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from frazil.runtime.files import PRIVATE_FILE, private_folder, write_atomically
from frazil.runtime.home import Home
from frazil.spark.submit.configuration import properties_text

_ABANDONED_SECONDS: Final = 3600.0
"""Age of private configuration that nobody will read any more: spark-submit does when it starts."""

_NO_CONF: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Handover:
    """Files between a job and the process that waits for it: a plan of thousands of partitions is too long for an argument.

    Attributes:
        pipeline: Name of the pipeline or capture.
        plan: File with the job's order.
        result: File for the job's result.
        properties: File with Spark's private configuration; None without one.
    """

    pipeline: str
    plan: Path
    result: Path
    properties: Path | None = None

    @classmethod
    def from_arguments(cls, prog: str, argv: list[str]) -> Handover:
        """Parse a job's command line: the reverse of `arguments`."""
        parser = argparse.ArgumentParser(prog=prog)
        parser.add_argument("--pipeline", required=True, help="name of the pipeline or capture")
        parser.add_argument("--plan", required=True, help="@FILE that holds what is asked for, as JSON")
        parser.add_argument("--result", type=Path, required=True, help="file for what was done, as JSON")
        arguments = parser.parse_args(argv)
        return cls(arguments.pipeline, Path(arguments.plan.removeprefix("@")), arguments.result)

    @property
    def arguments(self) -> list[str]:
        """Command-line arguments of the job."""
        return ["--result", str(self.result), "--pipeline", self.pipeline, "--plan", f"@{self.plan}"]

    def read_plan(self) -> str:
        """Read the plan: what the job is to do, as JSON."""
        return self.plan.read_text(encoding="utf-8")

    def hand_back(self, text: str) -> None:
        """Write the result of the job."""
        write_atomically(self.result, text)

    def read_result(self) -> str | None:
        """Read the result that the job wrote; None if it wrote none."""
        return self.result.read_text(encoding="utf-8") if self.result.exists() else None


@contextmanager
def handed_over(
    home: Home, pipeline: str, run_id: str, plan_json: str, conf: Mapping[str, str] = _NO_CONF
) -> Iterator[Handover]:
    """Write the job's plan and Spark's private configuration to files. At the end these are removed, as are files of killed
    submitters.
    """
    folder, name = private_folder(home.root / "plans"), f"{pipeline}-{quote(run_id, safe=':+')}"
    properties = folder / f"{name}.properties" if conf else None
    handover = Handover(pipeline, folder / f"{name}.json", folder / f"{name}.result.json", properties)
    _sweep(folder)
    handover.result.unlink(missing_ok=True)  # of a run that was killed
    try:
        write_atomically(handover.plan, plan_json)
        if properties is not None:
            write_atomically(properties, properties_text(conf), mode=PRIVATE_FILE)
        yield handover
    finally:
        for file in filter(None, (handover.plan, handover.result, properties)):
            file.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove private configuration whose submitter was killed: it may hold secrets, and no other run would."""
    for file in folder.glob("*.properties*"):  # also half written ones, which begin with a dot
        with suppress(FileNotFoundError):  # its own submitter, or another sweep, was faster
            if time.time() - file.stat().st_mtime > _ABANDONED_SECONDS:
                file.unlink()
