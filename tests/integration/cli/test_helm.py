"""What Airflow's Helm chart makes of the values of docs/install-platforms.md."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

HELM, CHART = os.environ.get("FRAZIL_HELM", ""), os.environ.get("FRAZIL_HELM_CHART", "")
"""A `helm`, and Airflow's chart, as a folder or a package."""

pytestmark = [
    pytest.mark.full,
    pytest.mark.tried("Helm chart of Airflow", "rendered"),
    pytest.mark.skipif(not (HELM and CHART), reason="FRAZIL_HELM and FRAZIL_HELM_CHART name no helm and no chart"),
]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "install-platforms.md"
IMAGE, GIT = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

COMPONENTS = ("api-server", "dag-processor", "scheduler", "triggerer")
TASKS = {"CeleryExecutor": "worker", "KubernetesExecutor": "base", "LocalExecutor": "scheduler"}
"""The container that runs tasks, by executor."""


def rendered(folder: Path, executor: str, *values: str) -> tuple[dict[str, Any], str]:
    """Pods by the container that Airflow runs in, and Airflow's configuration."""
    files = [folder / f"{number}.yaml" for number in range(len(values))]
    for file, text in zip(files, values, strict=True):
        file.write_text(text, encoding="utf-8")
    options = [option for file in files for option in ("--values", str(file))]
    command = [HELM, "template", "release", CHART, *options, "--set", f"executor={executor}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    manifests = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
    files_of = {name: text for manifest in manifests for name, text in (manifest.get("data") or {}).items()}
    pods = [m["spec"]["template"]["spec"] for m in manifests if m["kind"] in ("Deployment", "StatefulSet")]
    if template := files_of.get("pod_template_file.yaml"):
        pods.append(yaml.safe_load(template)["spec"])
    return {container["name"]: pod for pod in pods for container in pod["containers"]}, files_of["airflow.cfg"]


def container(pods: dict[str, Any], name: str) -> dict[str, Any]:
    (container,) = [each for each in pods[name]["containers"] if each["name"] == name]
    return dict(container)


def mounts(own: dict[str, Any]) -> list[tuple[str, str]]:
    """Volumes and paths of a container."""
    return [(mount["name"], mount["mountPath"]) for mount in own.get("volumeMounts") or []]


@pytest.mark.parametrize("values", [(IMAGE,), (IMAGE, GIT)], ids=["image", "git"])
@pytest.mark.parametrize("executor", TASKS)
def test_every_component_has_image_and_secrets(tmp_path: Path, executor: str, values: tuple[str, ...]) -> None:
    """A component without them fails where nobody looks. No name stands twice: Kubernetes' server-side apply refuses that."""
    pods, configuration = rendered(tmp_path, executor, *values)

    for name in {*COMPONENTS, TASKS[executor]}:
        own = container(pods, name)
        environment = {entry["name"]: entry for entry in own["env"]}
        assert max(Counter(entry["name"] for entry in own["env"]).values()) == 1
        assert environment["KAFKA_PASSWORD"]["valueFrom"] == {"secretKeyRef": {"name": "kafka", "key": "password"}}
        assert "AIRFLOW_CONN_FRAZIL_API" in environment
        assert ("authorities", "/etc/frazil") in mounts(own)
        if name != "base":
            assert own["image"] == "registry.example.org/airflow-frazil:1"
    # The executor puts this image in the place of the template's.
    assert (
        "worker_container_repository = registry.example.org/airflow-frazil\nworker_container_tag = 1" in configuration
    )


@pytest.mark.parametrize("executor", TASKS)
def test_image_keeps_its_own_folders(tmp_path: Path, executor: str) -> None:
    """Without Git sync the image has DAGs and project, and the variable that names it: nothing may cover them."""
    pods, configuration = rendered(tmp_path, executor, IMAGE)

    for name in {*COMPONENTS, TASKS[executor]}:
        own = container(pods, name)
        assert not {path for _, path in mounts(own)} & {"/opt/airflow", "/opt/airflow/dags", "/opt/airflow/include"}
        assert "FRAZIL_PROJECT" not in {entry["name"] for entry in own["env"]}
    assert "dags_folder = /opt/airflow/dags\n" in configuration


@pytest.mark.parametrize("executor", TASKS)
def test_git_sync_reaches_who_reads_the_project(tmp_path: Path, executor: str) -> None:
    """The branch, at the path that FRAZIL_PROJECT names: for tasks, DAG processor, triggerer, and the page in Airflow."""
    pods, configuration = rendered(tmp_path, executor, IMAGE, GIT)

    for name in {"api-server", "dag-processor", "triggerer", TASKS[executor]}:
        pod, own = pods[name], container(pods, name)
        (volume,) = [name for name, path in mounts(own) if path == "/opt/airflow/dags"]
        other_containers = [*pod["containers"], *(pod.get("initContainers") or [])]
        syncing = [each for each in other_containers if (volume, "/git") in mounts(each)]
        assert {"name": "FRAZIL_PROJECT", "value": "/opt/airflow/dags/repo"} in own["env"]
        assert syncing
        for each in syncing:
            settings = {entry["name"]: entry.get("value") for entry in each["env"]}
            assert (settings["GITSYNC_REF"], settings["GITSYNC_LINK"]) == ("main", "repo")
            keys = {entry["name"]: entry["valueFrom"]["secretKeyRef"] for entry in each["env"] if "valueFrom" in entry}
            for key in ("GITSYNC_USERNAME", "GITSYNC_PASSWORD"):
                assert keys[key] == {"name": "git", "key": key}
    assert "dags_folder = /opt/airflow/dags/repo/dags\n" in configuration
