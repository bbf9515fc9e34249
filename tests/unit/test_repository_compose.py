"""docker-compose.yml and the image keep the promises that Compose itself does not check."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from frazil.devstack import object_store
from frazil.pipeline.files.files import References
from frazil.pipeline.files.folder import load_pipelines
from frazil.pipeline.files.load import load_settings

pytestmark = pytest.mark.tried("Docker Compose", "rendered")

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKER = ROOT / "docker"
ONE_SHOT = {"airflow-init", "object-store-init", "object-store-users", "kafka-connect-init"}
UNASKED = {"generate-pizzas": "sends records, and serves nobody", "generate-payments": "the same"}
"""Servers without a health check, and why."""

PROFILES = {
    None: {
        "kafka", "schema-registry", "object-store", "object-store-users", "object-store-init", "iceberg-rest", "postgres", "airflow-init",
        "airflow-api-server", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer", "spark-master", "spark-worker",
    },
    "tools": {"kafka-ui", "generate-pizzas", "generate-payments", "notebook"},
    "observability": {"statsd-exporter", "prometheus", "grafana"},
    "cdc": {"cdc-database", "kafka-connect", "kafka-connect-init"},
}  # fmt: skip
WRITABLE = {"kafka-connect": "its entry point writes the configuration into the image's folders"}
"""Services whose image's files can be changed, and why."""

SECRETS = {
    "object-store-users": {"S3_WRITER_ACCESS_KEY", "S3_WRITER_SECRET_KEY", "S3_READER_ACCESS_KEY", "S3_READER_SECRET_KEY"},
    "object-store": {"S3_ROOT_ACCESS_KEY", "S3_ROOT_SECRET_KEY"},
    "object-store-init": {"S3_WRITER_ACCESS_KEY", "S3_WRITER_SECRET_KEY", "S3_READER_ACCESS_KEY"},
    "iceberg-rest": {"S3_WRITER_ACCESS_KEY", "S3_WRITER_SECRET_KEY"},
    "postgres": {"POSTGRES_PASSWORD"},
    "airflow-init": {"POSTGRES_PASSWORD", "AIRFLOW_FERNET_KEY", "AIRFLOW_PASSWORD", "AIRFLOW_TASKS_PASSWORD"},
    "airflow-api-server": {
        "POSTGRES_PASSWORD", "AIRFLOW_FERNET_KEY", "AIRFLOW_JWT_SECRET", "AIRFLOW_API_SECRET", "S3_READER_ACCESS_KEY",
        "S3_READER_SECRET_KEY",
    },
    "airflow-scheduler": {
        "POSTGRES_PASSWORD", "AIRFLOW_FERNET_KEY", "AIRFLOW_JWT_SECRET", "AIRFLOW_TASKS_PASSWORD", "S3_WRITER_ACCESS_KEY",
        "S3_WRITER_SECRET_KEY",
    },
    "airflow-dag-processor": {"POSTGRES_PASSWORD", "AIRFLOW_FERNET_KEY"},
    "airflow-triggerer": {"POSTGRES_PASSWORD", "AIRFLOW_FERNET_KEY", "S3_READER_ACCESS_KEY", "S3_READER_SECRET_KEY"},
    "notebook": {"NOTEBOOK_TOKEN", "S3_READER_ACCESS_KEY", "S3_READER_SECRET_KEY"},
    "grafana": {"GRAFANA_PASSWORD"},
    "cdc-database": {"CDC_PASSWORD"},
    "kafka-connect": {"CDC_PASSWORD"},
}  # fmt: skip
"""What each service needs of the secrets; the others need none."""

SECRET = re.compile(r"PASSWORD$|SECRET|FERNET|TOKEN|ACCESS_KEY")

each_service = pytest.mark.parametrize("name", SERVICES)
each_server = pytest.mark.parametrize("name", sorted(SERVICES.keys() - ONE_SHOT - UNASKED.keys()))


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
    checked = [*command, "--file", str(FILE), "--env-file", str(filled), "--profile", "*", "config", "--quiet"]

    done = subprocess.run(checked, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_file_fits_the_schema_of_compose_files() -> None:
    """A key that Compose does not know is a mistake, and no Compose is needed to find it."""
    carrier = pytest.importorskip("check_jsonschema", reason="carries the schema of the Compose specification")
    schema = Path(carrier.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"

    validator = jsonschema.validators.validator_for(read := json.loads(schema.read_text(encoding="utf-8")))(read)

    assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(COMPOSE)] == []


def test_every_service_is_in_its_profile() -> None:
    """What is named by nobody would start with everything, or with nothing."""
    services_by_profile: dict[str | None, set[str]] = {}
    for name, service in SERVICES.items():
        (profile,) = service.get("profiles", [None])
        services_by_profile.setdefault(profile, set()).add(name)

    assert services_by_profile == PROFILES
    assert SERVICES["spark-worker"]["deploy"]["replicas"] == 2


@each_service
def test_services_share_common_settings(name: str) -> None:
    """One that restarts or logs otherwise than its neighbours is found when a disk is full."""
    service = SERVICES[name]

    assert service["logging"] == COMPOSE["x-service"]["logging"]
    assert service["restart"] == ("on-failure:3" if name in ONE_SHOT else "unless-stopped")


@each_service
def test_images_are_pinned(name: str) -> None:
    """`latest` is another image tomorrow."""
    image, _, digest = SERVICES[name]["image"].partition("@")

    assert re.match(r"v?\d+\.\d+", image.rpartition(":")[2]), f"{name}: {image}"
    assert not digest or re.fullmatch(r"sha256:[0-9a-f]{64}", digest)


@each_server
def test_servers_have_health_checks(name: str) -> None:
    """Without a health check "started" passes for "ready", and those that depend on it fail by chance."""
    check = SERVICES[name]["healthcheck"]

    assert check["test"][0] == "CMD"
    assert {"interval", "timeout", "retries"} <= check.keys()


@each_service
def test_servers_are_given_time_to_stop(name: str) -> None:
    """Compose kills after ten seconds, in the middle of a batch if need be."""
    assert "stop_grace_period" in SERVICES[name]


@each_service
def test_services_wait_for_conditions_that_can_come(name: str) -> None:
    """A service that waits for one that is not there, or is not checked, waits for ever or not at all."""
    for dependency, wait in SERVICES[name].get("depends_on", {}).items():
        assert dependency in SERVICES
        assert dependency not in UNASKED
        assert SERVICES[dependency].get("profiles", []) in ([], SERVICES[name].get("profiles")) or not wait.get(
            "required", True
        ), "it is not there without its profile"
        assert wait["condition"] == ("service_completed_successfully" if dependency in ONE_SHOT else "service_healthy")


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_wait_of_each_profile_ends(profile: str | None) -> None:
    """`up --wait` wants each service up, and healthy where it has a check; one that ended well is a failure to it, unless one
    that is there waits for that end.
    """
    services = PROFILES[None] | PROFILES[profile]
    awaited = {
        dependency
        for name in services
        for dependency, wait in SERVICES[name].get("depends_on", {}).items()
        if wait["condition"] == "service_completed_successfully"
    }

    assert services & ONE_SHOT <= awaited
    assert {name for name in services if "healthcheck" not in SERVICES[name]} == services & (ONE_SHOT | UNASKED.keys())
    assert all(SERVICES[name]["restart"] == "unless-stopped" for name in services & UNASKED.keys())


def test_every_image_is_in_the_lock() -> None:
    """`docker/images.lock` has each image that is pulled, and no other; the file and the Dockerfile name it as the lock does."""
    lines = [line.split() for line in (DOCKER / "images.lock").read_text().splitlines() if not line.startswith("#")]
    locked = dict(lines)
    dockerfile = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    built = {service["image"] for service in SERVICES.values() if "build" in service}
    named = {service["image"] for service in SERVICES.values()} - built
    named |= set(re.findall(r"(?:^FROM |--from=)(\S+:\S+)", dockerfile, re.MULTILINE))

    assert len(lines) == len(locked)
    assert {image.partition("@")[0] for image in named} == locked.keys()
    assert all(re.fullmatch(r"unknown|sha256:[0-9a-f]{64}", digest) for digest in locked.values())
    assert all(image.partition("@")[2] in ("", locked[image.partition("@")[0]]) for image in named)


def test_services_have_the_versions_that_are_tested_without_containers() -> None:
    """What the tests start as processes says nothing about another version of it."""
    jars = (ROOT / "include" / "frazil" / "runtime" / "jars.lock.json").read_text(encoding="utf-8")
    packages = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    dockerfile = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    kafka, registry, store = (
        SERVICES[name]["image"].rpartition(":")[2] for name in ("kafka", "schema-registry", "object-store")
    )

    assert f"org.apache.kafka:kafka-clients:{kafka}" in jars
    assert f"io.apicurio:apicurio-registry-app:{registry}:" in jars
    assert store == object_store.VERSION
    assert [f"pyspark=={spark} " in packages for spark in re.findall(r"apache/spark:(\S+)", dockerfile)] == [True]


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
    text = json.dumps([SERVICES[name].get("command"), environment])
    assert re.findall(r"//\w+:(?!\$)[^@/]+@", text) == []
    secrets = {key: value for key, value in environment.items() if SECRET.search(key)}

    assert [key for key, value in secrets.items() if not value.startswith("${") or ":?" not in value] == []


@each_service
def test_service_knows_only_secrets_that_it_needs(name: str) -> None:
    """Whoever breaks into one service holds what it knows. Tasks, which pipelines steer, must not know the administrator's
    password, nor anybody but the store its root key.
    """
    variables = re.findall(r"\$\{(\w+):\?", json.dumps(SERVICES[name]))

    assert set(variables) == SECRETS.get(name, set())


def test_file_of_logins_is_mounted_where_people_log_in_only() -> None:
    """It holds the passwords of all who may log in to Airflow."""
    path = COMPOSE["x-airflow-logins"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]
    folder = path.rpartition("/")[0]
    mounted = {
        name for name, service in SERVICES.items() for volume in service.get("volumes", []) if f":{folder}" in volume
    }
    inside = {
        volume
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if folder.startswith(f"{volume.split(':')[-1]}/")
    }

    assert mounted == {"airflow-init", "airflow-api-server"}
    assert inside == set()


@each_service
def test_service_has_no_capabilities_and_can_not_change_its_image(name: str) -> None:
    """What a service does not have, nobody who breaks into it has."""
    service = SERVICES[name]

    assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
    assert not {"cap_add", "privileged", "pid", "ipc", "network_mode"} & service.keys()
    assert service["read_only"] is (name not in WRITABLE)
    assert [volume for volume in service.get("volumes", []) if volume.startswith("/var/run/docker.sock")] == []


@each_service
def test_folders_in_memory_can_be_written_by_the_user_of_the_image(name: str) -> None:
    """One in memory belongs to root, with the mode of the folder below it, unless its own is given."""
    assert [option for option in SERVICES[name].get("tmpfs", []) if "mode=1777" not in option] == []


def test_users_of_the_object_store_are_a_writer_and_a_reader(tmp_path: Path) -> None:
    """The file is the server's own form; its root key is not in it."""
    variables = {
        f"S3_{name}_{kind}_KEY": f"{name}-{kind}" for name in ("WRITER", "READER") for kind in ("ACCESS", "SECRET")
    }
    command = [sys.executable, str(DOCKER / "object_store.py"), "users", str(tmp_path)]

    subprocess.run(command, env=os.environ | variables, capture_output=True, check=True)

    accounts = json.loads((tmp_path / "users.json").read_text(encoding="utf-8"))["accessAccounts"]
    roles = {key: (account["access"], account["secret"], account["role"]) for key, account in accounts.items()}
    assert roles == {
        "WRITER-ACCESS": ("WRITER-ACCESS", "WRITER-SECRET", "userplus"),
        "READER-ACCESS": ("READER-ACCESS", "READER-SECRET", "user"),
    }


def test_the_example_environment_names_every_secret() -> None:
    """Whoever copies the example must not meet a variable it doesn't name."""
    example = (ROOT / "docker" / ".env.example").read_text(encoding="utf-8")

    assert sorted(re.findall(r"^(\w+)=$", example, re.MULTILINE)) == secret_names()


def test_generated_secrets_are_unique_and_complete() -> None:
    """`make_env.py` fills in every variable with a value that no other has, and that Airflow takes for a Fernet key."""
    command = [sys.executable, str(DOCKER / "make_env.py")]
    outputs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]

    values = [dict(re.findall(r"^(\w+)=(.+)$", text, re.MULTILINE)) for text in outputs]
    secrets = [values[n][name] for n in (0, 1) for name in secret_names()]
    assert len(set(secrets)) == 2 * len(secret_names())
    assert all(len(secret) >= 32 for secret in secrets)
    assert len(base64.urlsafe_b64decode(values[0]["AIRFLOW_FERNET_KEY"])) == 32


def test_mounted_files_are_there() -> None:
    """Docker makes an empty folder of a file that is missing, and the service fails over it."""
    mounted = [
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume.startswith(".")
    ]
    named = [
        part for service in SERVICES.values() for part in service.get("command", []) if "/opt/frazil/docker/" in part
    ]

    places = [*mounted, *(part.replace("/opt/frazil/", "./") for part in named)]
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_volumes_are_declared_and_used() -> None:
    """Compose refuses one that is not declared; one that is not used keeps data that nobody looks for."""
    used = {
        volume.split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume[0] not in "./"
    }

    assert used == COMPOSE["volumes"].keys()


def test_all_who_touch_the_lake_share_code_and_volumes() -> None:
    """Driver and workers must see the same files under the same paths, or data files go where nobody finds them."""
    ours = [service for service in SERVICES.values() if service["image"].startswith("frazil-")]

    assert len(ours) > 1
    code = [volume for volume in COMPOSE["x-frazil"]["volumes"] if volume.startswith(".")]
    at_work = [SERVICES[name] for name in ("airflow-scheduler", "spark-worker")]
    assert all({volume for volume in service["volumes"] if volume.startswith(".")} <= set(code) for service in ours)
    assert all({*code, "home:/var/lib/frazil"} <= set(service["volumes"]) for service in at_work)
    assert all(service["environment"].items() >= COMPOSE["x-environment"].items() for service in at_work)


def test_command_in_a_container_finds_airflow() -> None:
    """`frazil stop` would find no run to mark failed; and, in a home of its own, no driver of the others to wait for."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    (home,) = re.findall(r"FRAZIL_HOME=(\S+)", dockerfile)
    api = "http://airflow-api-server:8080"
    scheduler, server = (SERVICES[f"airflow-{name}"] for name in ("scheduler", "api-server"))
    environment = scheduler["environment"]
    login = environment["FRAZIL_AIRFLOW_USER"], environment["FRAZIL_AIRFLOW_PASSWORD"]
    assert environment["FRAZIL_AIRFLOW_URL"] == api
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == f"{api}/execution/"
    assert f"{login[0]}:user" in server["environment"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(",")
    assert f'"login": "{login[0]}"' in environment["AIRFLOW_CONN_FRAZIL_API"]
    assert f'"password": "{login[1]}"' in environment["AIRFLOW_CONN_FRAZIL_API"]
    assert f"home:{home}" in scheduler["volumes"]


def test_settings_of_the_stack_fit_the_pipelines() -> None:
    """A pipeline that names a cluster, catalog or engine unknown here would fail on its first run only."""
    references = References(
        dict.fromkeys(COMPOSE["x-environment"], "given"), {"home": "/nowhere", "kafka": "nowhere:1"}
    )
    settings = load_settings(ROOT / "docker" / "settings.yaml", references)
    pipelines = load_pipelines(ROOT / "include" / "pipelines", references)

    assert pipelines.broken == ()
    assert pipelines.usable
    for pipeline in pipelines.usable.values():
        assert pipeline.source.cluster in settings.clusters
        assert pipeline.catalog in settings.catalogs
        assert pipeline.engine in settings.engines
    hosts = [cluster.bootstrap_servers for cluster in settings.clusters.values()]
    urls = [
        *(catalog.uri for catalog in settings.catalogs.values()),
        *(registry.url for registry in settings.registries.values()),
    ]
    urls += [catalog.properties["s3.endpoint"] for catalog in settings.catalogs.values()]
    assert {url.split("//")[-1].partition(":")[0] for url in (*hosts, *urls)} <= SERVICES.keys()


def test_image_is_built_from_the_lock_with_checksums() -> None:
    """An image resolved anew at each build differs from what was tested."""
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")

    stages = re.findall(r"^FROM (\S+) AS (\w+)$", dockerfile, re.MULTILINE)
    stage_names = {stage for _, stage in stages}
    built = {service["build"]["target"] for service in SERVICES.values() if "build" in service}
    assert dockerfile.count("\nFROM ") == len(stages)
    assert [image for image, _ in stages if image not in stage_names] == re.findall(
        r"python:\d+\.\d+\.\d+-\S+", dockerfile
    )
    assert all(re.search(r":\d+\.\d+\.\d+$", image) for image in re.findall(r"--from=(\S+)", dockerfile))
    assert built <= stage_names
    assert dockerfile.count("--require-hashes") == len(
        re.findall(r"pip (?:install --no-cache-dir|sync|install --no-cache --c)", dockerfile)
    )
    assert dockerfile.rpartition("USER ")[2].strip() == "frazil"
    assert dockerfile.count("USER root") < dockerfile.count("USER frazil")
