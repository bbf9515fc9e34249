"""The ingest task on a Spark master of Kubernetes, where Airflow's provider goes ways of its own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.spark.submit.submission import Submission
from frazil_airflow.tasks.operators import SparkIngestOperator

pytestmark = pytest.mark.dags


def test_driver_on_kubernetes_inherits_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider passes variables to pods of drivers alone, as arguments: this driver is the task's child, and inherits them."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ["AIRFLOW_CONN_FRAZIL_SPARK"] = '{"conn_type": "spark", "host": "k8s://https://k8s.example.org:6443"}'
    job = Submission(
        tmp_path / "ingest.py", "frazil orders", {"FRAZIL_SUBMITTER": "7", "JAVA_HOME": "/java", "PYTHONPATH": "/x"}
    )
    ingest = SparkIngestOperator(
        task_id="ingest", pipeline="orders", plan_json="", asset_name="lake.shop.orders", conn_id="frazil_spark"
    )
    provider = "airflow.providers.apache.spark.hooks.spark_submit"
    monkeypatch.delattr(f"{provider}.kube_client", raising=False)
    with pytest.raises(Terminal, match="Kubernetes provider is not installed"):
        ingest.use(job)
    monkeypatch.setattr(f"{provider}.kube_client", object(), raising=False)
    starts: list[dict[str, Any]] = []

    class Job:
        """Ends well."""

        stdout = ("frazil: said 0",)

        def __init__(self, command: list[str], env: dict[str, str] | None = None, **_: object) -> None:
            starts.append({"command": command, "env": dict(os.environ) if env is None else env})

        def wait(self) -> int:
            return 0

    monkeypatch.setattr(f"{provider}.subprocess.Popen", Job)
    ingest.use(job)
    ingest._get_hook().submit(str(job.application))

    (start,) = starts
    assert start["command"][:3] == ["spark-submit", "--master", "k8s://https://k8s.example.org:6443"]
    assert job.env.items() <= start["env"].items()
    assert "driverEnv" not in " ".join(start["command"])
