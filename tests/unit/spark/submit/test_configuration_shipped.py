"""What each kind of cluster is submitted with, from the settings file that the documentation shows."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from frazil.batch.plan import RunPlan
from frazil.pipeline.files.files import References
from frazil.pipeline.files.load import ConfigError, load_settings
from frazil.project import Project
from frazil.runtime.home import Home, project_root
from frazil.spark.submit import submission as submit
from frazil.spark.submit.configuration import REDACTION, code_archive, digest

pytestmark = [
    pytest.mark.tried("Spark on YARN, driver beside the task", "rendered"),
    pytest.mark.tried("Spark on Kubernetes, driver beside the task", "rendered"),
]

EXAMPLE = project_root() / "docs" / "examples" / "settings-clusters.yaml"
PIPELINE = """
name: orders
engine: {engine}
source: {{topics: [orders]}}
destinations: [{{table: shop.orders, columns: {{id: long}}}}]
"""
PLAN = RunPlan("orders", "a run", "2026-05-01T10:00:00.000+00:00", "c", {}, complete=False)

DRIVER = Path(sys.executable).absolute().parent / "python"

COMMON = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.pyspark.driver.python": str(DRIVER),
    **REDACTION,
}
RENDERED = {
    "standalone": {
        "spark.driver.host": "airflow.example.org",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - of the example
        "spark.cores.max": "8",
        "spark.executor.cores": "2",
        "spark.executor.memory": "2g",
        "spark.pyspark.python": str(DRIVER),
        "spark.python.daemon.module": "frazil.spark.jobs.workers",
        "spark.executorEnv.PYTHONPATH": "{sources}",
    },
    "yarn": {
        "spark.yarn.queue": "ingest",
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.maxExecutors": "10",
        "spark.shuffle.service.enabled": "true",
        "spark.executor.cores": "2",
        "spark.executor.memory": "2g",
        "spark.archives": "hdfs:///envs/frazil-env.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.submit.pyFiles": "{home}/py-files/frazil-{digest}.zip",
    },
    "yarn-driver": {
        "spark.yarn.archive": "hdfs:///spark/spark-4.1.3-jars.zip",
        "spark.executor.instances": "4",
        "spark.executor.cores": "2",
        "spark.archives": "hdfs:///envs/frazil-env.tar.gz#environment",
        "spark.pyspark.python": "./environment/bin/python",
        "spark.pyspark.driver.python": "./environment/bin/python",
        "spark.submit.pyFiles": "{home}/py-files/frazil-{digest}.zip",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.appMasterEnv.FRAZIL_PROJECT": "frazil-project",
        "spark.yarn.appMasterEnv.FRAZIL_HOME": "frazil-home",
        "spark.yarn.appMasterEnv.FRAZIL_SHIPPED": "1",
    },
    "kubernetes": {
        "spark.kubernetes.namespace": "ingest",
        "spark.kubernetes.container.image": "registry.example.org/frazil-spark:0.1.0",
        "spark.kubernetes.authenticate.serviceAccountName": "spark",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - of the example
        "spark.pyspark.python": "/opt/venv/bin/python",
        "spark.python.daemon.module": "frazil.spark.jobs.workers",
        "spark.executor.instances": "4",
        "spark.executor.cores": "2",
        "spark.executor.memory": "2g",
    },
}
MASTERS = {
    "standalone": "spark://spark-master.example.org:7077",
    "yarn": "yarn",
    "yarn-driver": "yarn",
    "kubernetes": "k8s://https://kubernetes.default.svc:443",
}


@pytest.mark.parametrize("engine", RENDERED)
def test_cluster_gets_exactly_its_configuration(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Master and every property of the job are those that the settings and the kind of cluster ask for, no more and no less."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(PIPELINE.format(engine=engine))
    own = {
        "FRAZIL_HOME": str(tmp_path),
        "FRAZIL_SETTINGS": str(EXAMPLE),
        "FRAZIL_PIPELINES": str(tmp_path / "pipelines"),
    }
    project = Project.load(own)
    monkeypatch.setattr(submit, "fetch", lambda *_: None)

    job = submit.submission(project, project.pipeline("orders"), PLAN)

    facts = {"home": str(tmp_path), "digest": digest(), "sources": str(project.root / "include")}
    expected = {key: value.format(**facts) for key, value in RENDERED[engine].items()}
    conf = {**job.conf, **job.private}
    assert "-XX" in conf.pop("spark.driver.extraJavaOptions")
    assert conf == COMMON | expected
    assert job.master == MASTERS[engine]
    command = job.command(["--plan", "@file"])
    assert command[1:3] == ["--master", MASTERS[engine]]
    assert ("--deploy-mode" in command) is (engine == "yarn-driver")


def test_current_code_is_shipped(tmp_path: Path) -> None:
    """The archive holds this very code and what it reads, is made once, and importing it makes no difference."""
    home = Home(tmp_path, tmp_path, tmp_path)
    archive = code_archive(home)

    written = archive.stat().st_mtime_ns
    assert code_archive(home) == archive
    assert archive.stat().st_mtime_ns == written
    with zipfile.ZipFile(archive) as packed:
        names = set(packed.namelist())
    assert {"frazil/spark/jobs/stage.py", "frazil/runtime/jars.lock.json"} <= names
    assert not [name for name in names if name.endswith(".pyc")]
    script = f"import sys; sys.path.insert(0, {str(archive)!r}); from frazil.spark.submit.configuration import digest; print(digest())"

    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={})
    assert process.stdout.strip() == digest()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("master: yarn\n    conf: {spark.submit.deployMode: cluster}", "deploy_mode"),
        ("master: spark://a:7077\n    deploy_mode: cluster", "only YARN"),
    ],
)
def test_deploy_mode_is_a_key_of_engines_on_yarn(tmp_path: Path, written: str, expected: str) -> None:
    """It is refused elsewhere where the file is checked, with the reason and the way to do it."""
    head, _, _ = EXAMPLE.read_text().partition("engines:")
    (tmp_path / "settings.yaml").write_text(f"{head}engines:\n  spark:\n    {written}\n")

    with pytest.raises(ConfigError, match=expected):
        load_settings(tmp_path / "settings.yaml", References({}, {}))
