"""Executors of a real cluster whose Python has the packages, but not Frazil."""

from __future__ import annotations

import json
import site
import venv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from frazil.devstack import spark_cluster
from frazil.runtime.home import Home
from frazil.runtime.process import Processes
from tests.servers import with_ports


def python_without_frazil(root: Path) -> Path:
    """A Python with all packages of this one, but not what is installed in editable form: that is Frazil."""
    venv.create(root)
    (own,) = root.glob("lib/python*/site-packages")
    (own / "packages.pth").write_text("\n".join(site.getsitepackages()))
    return root / "bin" / "python"


@pytest.mark.full
def test_executors_get_their_code_as_zip(
    place: Any, broker: str, free_ports: Callable[[int], list[int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without `py_files: zip` the doctor names what they lack; with it they are well, and a run lands."""
    (port,) = free_ports(1)
    home = with_ports(replace(Home.resolve(), root=tmp_path_factory.mktemp("cluster")), spark_master=port)
    processes = Processes(home.run, home.logs, home.root)
    conf = {
        "spark.pyspark.python": str(python_without_frazil(home.root / "python")),
        "spark.cores.max": "1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": "/nowhere",
    }
    engine = {"master": spark_cluster.url(port), "conf": conf}
    settings = place.root / "settings.yaml"
    before = settings.read_text()
    place.succeed("produce", place.topic, "--generate", "payments", "--count", "1000")
    try:
        spark_cluster.start(home, processes, print, 1)
        settings.write_text(f"{before}\nengines: {json.dumps({'spark': engine})}\n")
        lacking = place.frazil("doctor", "orders", "--spark", "--json")
        settings.write_text(f"{before}\nengines: {json.dumps({'spark': engine | {'py_files': 'zip'}})}\n")
        report = place.json("doctor", "orders", "--spark")
        place.succeed("run", "orders", "--engine", "spark")
    finally:
        spark_cluster.stop(processes, 1)

    check = {check_report["check"]: check_report for check_report in json.loads(lacking.stdout)["checks"]}[
        "executors of spark"
    ]
    assert (lacking.returncode, check["state"]) == (1, "failed")
    assert "No module named 'frazil'" in check["found"]
    by_name = {check_report["check"]: check_report for check_report in report["checks"]}["executors of spark"]
    assert by_name["state"] == "ok", by_name
    assert place.json("sql", "SELECT count(*) AS rows FROM shop.orders") == [{"rows": 1000}]
