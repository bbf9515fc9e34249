"""docker-compose.yml and the image keep the promises that Compose itself does not check."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from frazil.pipeline.folder import load_pipelines
from frazil.pipeline.load import load_settings
from frazil.pipeline.references import References

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"airflow-init"}
SECRET = re.compile(r"PASSWORD$|SECRET|FERNET|TOKEN")

each_service = pytest.mark.parametrize("name", SERVICES)
each_server = pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOT))


def secret_names() -> list[str]:
    """Variables that the file takes its secrets from."""
    return sorted(set(re.findall(r"\$\{(\w+):\?", FILE.read_text(encoding="utf-8"))))


def compose_command() -> list[str] | None:
    """Docker Compose as this machine has it: a plugin of docker, or a command of its own."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def test_compose_accepts_the_file(tmp_path: Path) -> None:
    """What Compose refuses to read can't be started."""
    command = compose_command()
    if command is None:
        pytest.skip("no Docker Compose on this machine; the rules below hold without it")
    filled = tmp_path / "env"
    filled.write_text("".join(f"{name}=filled-in\n" for name in secret_names()), encoding="utf-8")
    checked = [*command, "--file", str(FILE), "--env-file", str(filled), "config", "--quiet"]

    done = subprocess.run(checked, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@each_service
def test_images_are_pinned(name: str) -> None:
    """`latest` is another image tomorrow."""
    tag = SERVICES[name]["image"].rpartition(":")[2]

    assert re.match(r"\d+\.\d+", tag), f"{name}: {SERVICES[name]['image']}"


@each_server
def test_servers_say_whether_they_are_healthy(name: str) -> None:
    """Without a health check "started" passes for "ready", and those that depend on it fail by chance."""
    check = SERVICES[name]["healthcheck"]

    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= check.keys()


@each_server
def test_servers_are_given_time_to_stop(name: str) -> None:
    """Compose kills after ten seconds, in the middle of a batch if need be."""
    assert "stop_grace_period" in SERVICES[name]


@each_service
def test_services_wait_for_conditions_that_can_come(name: str) -> None:
    """A service that waits for one that is not there, or is not checked, waits for ever or not at all."""
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        assert wait["condition"] == ("service_completed_successfully" if other in ONE_SHOT else "service_healthy")


@each_service
def test_services_are_bounded(name: str) -> None:
    """One service that eats the machine takes the others with it."""
    assert SERVICES[name]["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}


@each_service
def test_ports_are_published_on_the_loopback_interface(name: str) -> None:
    """Docker opens published ports to the network past the host's firewall."""
    assert [port for port in SERVICES[name].get("ports", []) if not port.startswith("127.0.0.1:")] == []


@each_service
def test_secrets_come_from_the_environment(name: str) -> None:
    """A password in the file, or a default for one, is everybody's password."""
    environment: dict[str, str] = SERVICES[name].get("environment", {})
    secrets = {key: value for key, value in environment.items() if SECRET.search(key)}

    assert [key for key, value in secrets.items() if not value.startswith("${") or ":?" not in value] == []


def test_the_example_environment_names_every_secret() -> None:
    """Whoever copies the example must not meet a variable it doesn't name."""
    example = (ROOT / "docker" / ".env.example").read_text(encoding="utf-8")

    assert sorted(re.findall(r"^(\w+)=$", example, re.MULTILINE)) == secret_names()


def test_all_who_touch_the_lake_share_code_and_volumes() -> None:
    """Driver and workers must see the same files under the same paths, or data files go where nobody finds them."""
    ours = [service for service in SERVICES.values() if service["image"].startswith("frazil:")]

    assert len(ours) > 1
    assert all(service["volumes"] == ours[0]["volumes"] for service in ours)
    assert all(service["environment"]["PYTHONPATH"] == ours[0]["environment"]["PYTHONPATH"] for service in ours)


def test_command_in_a_container_knows_no_airflow() -> None:
    """`frazil stop` would find no run to mark failed; and, in a home of its own, no driver of the others to wait for."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (home,) = re.findall(r"FRAZIL_HOME=(\S+)", dockerfile)
    api = "http://airflow-api-server:8080"
    for name, service in SERVICES.items():
        if not name.startswith("airflow-"):
            continue
        environment = service["environment"]
        login = environment["FRAZIL_AIRFLOW_USER"], environment["FRAZIL_AIRFLOW_PASSWORD"]
        assert environment["FRAZIL_AIRFLOW_URL"] == api
        assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == f"{api}/execution/"
        assert f"{login[0]}:admin" == environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"]
        assert f'"password": "{login[1]}"' in environment["AIRFLOW_CONN_FRAZIL_API"]
        assert f"lake:{home}" in service["volumes"]


def test_settings_of_the_stack_fit_the_pipelines() -> None:
    """A pipeline that names a cluster, catalog or engine unknown here would fail on its first run only."""
    references = References({}, {"home": "/nowhere", "kafka": "nowhere:1"})
    settings = load_settings(ROOT / "docker" / "settings.yaml", references)
    pipelines = load_pipelines(ROOT / "include" / "pipelines", references)

    assert pipelines.broken == ()
    assert pipelines.usable
    for pipeline in pipelines.usable.values():
        assert pipeline.source.cluster in settings.clusters
        assert pipeline.catalog in settings.catalogs
        assert pipeline.engine in settings.engines
    assert {cluster.bootstrap_servers.partition(":")[0] for cluster in settings.clusters.values()} <= SERVICES.keys()


def test_image_is_built_from_the_lock_with_checksums() -> None:
    """An image resolved anew at each build differs from what was tested."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")

    assert re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE) == re.findall(r"python:\d+\.\d+\.\d+-\S+", dockerfile)
    assert dockerfile.count("--require-hashes") == len(re.findall(r"pip (?:install --no-cache-dir|sync)", dockerfile))
    assert "USER frazil" in dockerfile
