"""The wheel, in a folder of its own: everything that a checkout has for Airflow and Spark is in it, and no file of the checkout is read."""

from __future__ import annotations

import json
import shutil
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.runtime import java
from frazil.runtime.home import Home
from frazil.runtime.jars import fetch
from frazil.runtime.java import Java
from frazil.spark.submit.class_archive import archive_options
from frazil.spark.submit.configuration import job_file
from tests.conftest import FreePorts, TopicFactory
from tests.produce import produce
from tests.wheel import Installed, build_wheel

ROOT = Path(__file__).resolve().parents[3]
PACKED = {"include/frazil": "frazil", "plugins/frazil_airflow": "frazil_airflow", "spark_jobs": "frazil/spark_jobs"}
"""Folders of the checkout that are in the wheel whole, and what they are called there."""

SCHEMAS = {"frazil/schemas/pipeline.schema.json", "frazil/schemas/settings.schema.json"}

OPTIONAL = (
    "airflow",
    "boto3",
    "duckdb",
    "fastavro",
    "google.protobuf",
    "grpc_tools",
    "jsonschema_rs",
    "pyspark",
    "sqlalchemy",
)
"""Libraries that only some pipelines, catalogs or engines need."""

LOADED = f"""
import sys
import frazil.cli.app, frazil.project, frazil.records.decoder.decode, frazil.run.batches.session
print(*(name for name in {OPTIONAL} if name in sys.modules))
"""
PROBE = """
import json, sys
from airflow import plugins_manager
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager
from airflow.serialization.serialized_objects import DagSerialization

bag = DagBag(sys.argv[1])
for dag in bag.dags.values():
    DagSerialization.from_dict(DagSerialization.to_dict(dag))
plugins, errors = plugins_manager._get_plugins()
(plugin,) = [plugin for plugin in plugins if plugin.name == "frazil"]
apps = [app["url_prefix"] for app in plugin.fastapi_apps]

from frazil.report import dead_letters_summary
from frazil_airflow.page import rendering
from frazil.spark.submit.configuration import job_file

pages = rendering._environment()
templates = [pages.get_template(name).name for name in pages.list_templates()]
files = [getattr(module, "__file__", None) or "" for name, module in sys.modules.items() if name.startswith("frazil")]
print("PROBE " + json.dumps({
    "dags": sorted(bag.dags), "errors": bag.import_errors | errors, "source": str(plugin.source), "apps": apps,
    "templates": templates, "files": files, "job": str(job_file("ingest.py")),
    "provider": ProvidersManager().providers["frazil"].data["name"],
    "links": [link for link in ProvidersManager().extra_links_class_names if link.startswith("frazil")],
}))
"""


LAYOUTS = {
    "Astro Runtime: its folders": ("usr/local/airflow", "usr/local/airflow", "usr/local/airflow"),
    "Cloud Composer: its folders": ("home/airflow/airflow", "home/airflow/gcs", "home/airflow/gcs/plugins/frazil"),
    "Amazon MWAA: its folders": ("usr/local/airflow", "usr/local/airflow", "usr/local/airflow/dags/frazil"),
}
"""Managed Airflows: their AIRFLOW_HOME, the folder with dags/ and plugins/, and where docs/install-platforms.md puts the project."""


def files(folder: Path) -> Iterator[Path]:
    """What a person wrote below a folder, relative to it."""
    for path in folder.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built and unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(build_wheel(folder)) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def installed(site: Path, tmp_path: Path) -> Installed:
    installed = Installed(site, tmp_path)
    installed.pipeline("inline", "127.0.0.1:1", "orders")
    return installed


def test_wheel_has_every_file_that_a_checkout_runs(site: Path) -> None:
    """A template, style sheet or job that is left out is missed only where it is used: on somebody else's Airflow."""
    expected = {f"{name}/{file}" for folder, name in PACKED.items() for file in files(ROOT / folder)} | SCHEMAS

    assert {str(file) for file in files(site) if ".dist-info" not in file.parts[0]} == expected


def test_airflow_gets_dags_plugin_and_provider_from_the_wheel(installed: Installed) -> None:
    """Two lines in a file of one's own make all DAGs; page, links and priority come by entry points, with no file copied.

    Airflow drops every DAG of a file that fails: a typo in one pipeline must not take the others off the schedule.
    """
    (installed.project / "include" / "pipelines" / "typo.yaml").write_text("name: typo\nsauce: {topics: [t]}\n")
    (installed.project / "dags").mkdir()
    file = installed.project / "dags" / "frazil_dags.py"
    file.write_text("from frazil_airflow import dags\n\ndags.load()\n")

    script = installed.python(str(file))  # as people check a DAG file: its folder is then the first where Python looks
    done = installed.python("-c", PROBE, str(installed.project / "dags"))

    assert script.returncode == 0, script.stderr
    assert done.returncode == 0, done.stderr
    probe: dict[str, Any] = json.loads(done.stdout.rpartition("PROBE ")[2])
    kinds = ("dead_letters", "ingest", "maintain", "replay_dead_letters")
    # The environment of the tests names the same plugin a second time.
    assert [error for error in probe["errors"].values() if "already registered" not in error] == []
    assert "typo.yaml" in done.stdout + done.stderr
    assert probe["dags"] == sorted(["monitor", *(f"{kind}__orders" for kind in kinds)])
    assert probe["source"].startswith("frazil==")
    assert probe["apps"] == ["/frazil_reports", "/frazil/connect", "/frazil"]
    assert "overview.html.j2" in probe["templates"]
    assert probe["provider"] == "Frazil"
    assert len(probe["links"]) == 2
    assert [file for file in [*probe["files"], probe["job"]] if not file.startswith(str(installed.site))] == []


@pytest.mark.parametrize("platform", LAYOUTS)
@pytest.mark.tried("Astro Runtime: its folders", "rendered")
@pytest.mark.tried("Cloud Composer: its folders", "rendered")
@pytest.mark.tried("Amazon MWAA: its folders", "rendered")
def test_airflow_finds_dags_and_page_in_the_folders_of_a_platform(platform: str, site: Path, tmp_path: Path) -> None:
    """The project may lie in the folder of DAGs or of plugins, which Airflow searches for Python files."""
    home, parent, project = LAYOUTS[platform]
    dags, plugins = tmp_path / parent / "dags", tmp_path / parent / "plugins"
    for folder in (dags, plugins, tmp_path / project):
        folder.mkdir(parents=True, exist_ok=True)
    (dags / "frazil.py").write_text("from frazil_airflow import dags\n\ndags.load()\n")
    (plugins / "frazil-0.1.0-py3-none-any.whl").touch()
    installed = Installed(site, tmp_path / project)
    installed.pipeline("inline", "127.0.0.1:1", "orders")
    platform_variables = {
        "AIRFLOW_HOME": str(tmp_path / home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "FRAZIL_HOME": str(tmp_path / "tmp" / "frazil"),
    }

    done = installed.python("-c", PROBE, str(dags), **platform_variables)

    assert done.returncode == 0, done.stderr
    probe: dict[str, Any] = json.loads(done.stdout.rpartition("PROBE ")[2])
    assert [error for error in probe["errors"].values() if "already registered" not in error] == []
    assert "ingest__orders" in probe["dags"]
    assert "/frazil" in probe["apps"]
    assert f"/{project}" in (ROOT / "docs" / "install-platforms.md").read_text(encoding="utf-8")


def test_project_is_named_and_never_the_working_folder(installed: Installed) -> None:
    """A task of Airflow works anywhere: settings that are found by chance are those of somebody else."""
    shutil.copytree(installed.project / "include", installed.project / "empty" / "include")

    refused = installed.python("-m", "frazil.cli", "validate", FRAZIL_PROJECT="")
    usable = installed.python("-m", "frazil.cli", "validate")

    assert refused.returncode == 78
    assert "FRAZIL_PROJECT is not set" in refused.stderr
    assert usable.returncode == 0, usable.stderr
    assert "2 files, all usable" in usable.stdout


def test_landing_json_loads_no_library_that_others_need(installed: Installed) -> None:
    """A library that only one format or engine needs must not be needed, nor waited for, by all."""
    done = installed.python("-c", LOADED)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_missing_job_needs_a_person() -> None:
    """Another try finds it no more: it was called something to try again later."""
    with pytest.raises(Terminal, match=r"none\.py does not exist"):
        job_file("none.py")


def test_spark_engine_without_pyspark_needs_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without the extra `spark` can land by the engine `inline` only; it was an unexpected error."""
    monkeypatch.setattr(java, "find_spec", lambda _: None)

    with pytest.raises(Terminal, match="PySpark is not installed"):
        archive_options(Home.resolve(), Java(Path("/java"), 17))


@pytest.mark.short("inline")
@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_pipeline_of_a_project_lands_records(
    engine: str, installed: Installed, broker: str, cluster: Cluster, topic: TopicFactory
) -> None:
    """In the process that plans, and in a job of Spark, whose program is in the wheel, too."""
    if engine == "spark":
        fetch(Home.resolve(), "spark")
    name = topic()
    produce(cluster, name, [OutgoingRecord(None, json.dumps({"id": number}).encode()) for number in range(20)])
    installed.pipeline(engine, broker, name)

    ran = installed.python("-m", "frazil.cli", "run", "orders")
    verified = installed.python("-m", "frazil.cli", "verify", "orders")

    assert ran.returncode == 0, textwrap.indent(ran.stderr, "  ")
    assert "20 written + 0 dead" in ran.stdout + ran.stderr
    assert "orders: clean, 20 records" in verified.stdout + verified.stderr
    assert (installed.project / ".frazil" / "catalog.db").is_file()


def test_first_hour_needs_nothing_but_the_wheel(site: Path, tmp_path: Path, free_ports: FreePorts) -> None:
    """In an empty folder: a project, a broker, a pipeline for a topic, its rows. `make test-full` has an empty environment as
    well: tests/integration/cli/test_versions.py.
    """
    Installed(site, tmp_path).first_hour(*free_ports(2))
