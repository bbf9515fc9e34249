"""Processes of tests that start in milliseconds: forked from one that has loaded what they need and has no threads."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory

from frazil.runtime.home import Home


def fork_server() -> ForkServerContext:
    """The fork server of this test process, which has loaded what a run and the command need."""
    project = Home.resolve().project
    paths = [str(project / "include"), str(project)]
    if os.environ.get("PYTHONPATH", "").split(os.pathsep)[:2] != paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.chaos.child", "rich.table", "typer"])
    return context


def run_frazil(arguments: Sequence[str], env: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run the command `frazil` in a process of its own, to its end; loading its libraries anew would take two seconds each time.

    Raises:
        subprocess.TimeoutExpired: It did not end in time; it is killed.
    """
    with TemporaryDirectory() as folder:
        stdout, stderr = Path(folder, "stdout"), Path(folder, "stderr")
        process = fork_server().Process(target=_command, args=([*arguments], dict(env), stdout, stderr))
        process.start()
        process.join(seconds)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        process.close()
        command = ["frazil", *arguments]
        if code is None:
            raise subprocess.TimeoutExpired(command, seconds, stdout.read_bytes(), stderr.read_bytes())
        return subprocess.CompletedProcess(command, code, stdout.read_text("utf-8"), stderr.read_text("utf-8"))


def _command(arguments: list[str], env: Mapping[str, str], stdout: Path, stderr: Path) -> None:
    """Become the command: its variables, its arguments, its output in files."""
    os.environ.clear()
    os.environ.update(env)
    for number, path in ((0, Path(os.devnull)), (1, stdout), (2, stderr)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["frazil", *arguments]
    try:
        runpy.run_module("frazil.cli", run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # a forked process ends without them
