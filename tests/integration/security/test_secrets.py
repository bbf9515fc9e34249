"""No secret of the settings is anywhere but where it was put: every artifact of runs is looked through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from frazil.runtime.home import project_root

_SECONDS = 240

MARKS = {
    "REGISTRY_PASSWORD": "marked-registry",
    "CATALOG_CREDENTIAL": "marked-catalog",
    "STORE_KEY": "marked-store",
    "OWN_CONF": "marked-own",
    "WRONG_PASSWORD": "marked-wrong",
}
"""Variables that the settings refer to."""

SETTINGS = {
    "registries": {"main": {"url": "https://127.0.0.1:9", "user_info": "reader:${env:REGISTRY_PASSWORD}"}},
    "engines": {
        "spark": {
            "master": "local[1]",
            "conf": {
                "spark.hadoop.fs.s3a.secret.key": "${env:STORE_KEY}",
                "spark.frazil.test": "${env:OWN_CONF}",  # its name doesn't tell
            },
        }
    },
}


@contextmanager
def arguments_seen() -> Iterator[set[str]]:
    """Arguments of all processes of the machine that run while the block does."""
    lines, ended = set[str](), threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    lines.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:
                    continue  # it has ended

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lines
    finally:
        ended.set()
        thread.join()


def holding(root: Path, secrets: list[str], put: set[Path]) -> list[str]:
    """Files below a folder that hold one of the secrets, but for those where they were put."""
    pids = []
    for path in root.rglob("*"):
        if path.is_file() and path not in put:
            content = path.read_bytes()
            pids += [f"{secret} in {path}" for secret in secrets if secret.encode() in content]
    return pids


@pytest.fixture
def marked(ward: Any) -> Any:
    """A ward whose settings have secrets in every place, and whose pipeline lets the catalog have some."""
    ward.guarded.allow(*ward.needed())
    ward.project(ward.guarded.clients()["SCRAM-SHA-512"])
    path = ward.root / "settings.yaml"
    settings = json.loads(path.read_text()) | SETTINGS
    settings["catalogs"]["lake"]["properties"] = {"credential": "${env:CATALOG_CREDENTIAL}"}
    path.write_text(json.dumps(settings))
    return ward


@pytest.mark.parametrize("engine", ["inline", pytest.param("spark", marks=pytest.mark.full)])
def test_secret_is_found_nowhere_else(marked: Any, engine: str) -> None:
    """Arguments of processes, output, plan, logs, tables and their metadata of a run that lands, of one that fails, and of looks."""
    password = marked.guarded.clients()["SCRAM-SHA-512"]["sasl.password"]
    secrets = [password, *MARKS.values()]
    env = os.environ | marked.environment | MARKS | {"PYTHONPATH": str(project_root() / "include")}
    lines: list[str] = []

    def frazil(*arguments: str) -> int:
        command = [sys.executable, "-m", "frazil.cli", *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=_SECONDS)
        lines.append(done.stdout + done.stderr)
        return done.returncode

    with arguments_seen() as seen:
        assert frazil("plan", marked.name, "--json") == 0, lines[-1]
        assert frazil("run", marked.name, "--engine", engine, "--json") == 0, lines[-1]
        assert '"written":2' in lines[-1]
        assert frazil("status", marked.name) in (0, 1), lines[-1]
        assert frazil("validate") == 0, lines[-1]
        (marked.root / "secrets.properties").write_text(f"sasl.password={MARKS['WRONG_PASSWORD']}\n")
        assert frazil("run", marked.name, "--engine", engine) == 78, lines[-1]
        assert "sasl.password" in lines[-1]

    own = [line for line in seen if marked.name in line]
    assert any("frazil.cli run" in line for line in own)
    assert any("SparkSubmit" in line for line in own) == (engine == "spark")
    assert [line for line in seen for secret in secrets if secret in line] == []
    assert [text for text in lines for secret in secrets if secret in text] == []
    assert holding(marked.root, secrets, {marked.root / "secrets.properties"}) == []
