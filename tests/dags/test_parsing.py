"""Parsing dags/: what is imported, which pipelines become DAGs, and what becomes of broken files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

pytestmark = pytest.mark.dags

HEAVY = {"confluent_kafka", "duckdb", "pandas", "pyarrow", "pyiceberg", "pyspark"}


def test_parsing_imports_no_engine(probe, write_pipeline, pipelines: Path, tmp_path: Path):
    """The DAG processor and every task parse these files: a heavy import there is paid again and again."""
    for number in range(5):
        write_pipeline(f"orders{number}")

    found = probe({"FRAZIL_PIPELINES": str(pipelines), "FRAZIL_HOME": str(tmp_path)})

    assert found["errors"] == {}
    assert found["dags"] == [f"ingest__orders{number}" for number in range(5)]
    assert HEAVY & {module.partition(".")[0] for module in found["modules"]} == set()


def test_the_same_files_give_the_same_dags(parse, write_pipeline):
    """A DAG that differs at every parse would be a new version every few seconds."""
    from airflow.serialization.serialized_objects import DagSerialization

    write_pipeline("orders")
    write_pipeline("ticks", interval="7m")

    first, second = parse().dags, parse().dags

    assert [DagSerialization.to_dict(dag) for dag in first.values()] == [
        DagSerialization.to_dict(dag) for dag in second.values()
    ]


def test_one_broken_file_does_not_stop_the_other_pipelines(parse, write_pipeline, pipelines: Path):
    """The broken one is an import error that names file, key and near match; the good one has its DAG."""
    write_pipeline("orders")
    broken = write_pipeline("returns")
    broken.write_text(broken.read_text().replace("interval:", "intervall:"))

    bag = parse()

    assert sorted(bag.dags) == ["ingest__orders"]
    ((file, error),) = bag.import_errors.items()
    assert file.endswith("broken_pipelines.py")
    assert str(broken) in error
    assert "intervall: unknown key, did you mean 'interval'?" in error


def test_a_name_that_the_settings_do_not_know_stops_one_pipeline_only(parse, write_pipeline):
    """A readable file may still name an engine that is not there."""
    write_pipeline("orders")
    write_pipeline("returns", engine="sparc")

    bag = parse()

    assert sorted(bag.dags) == ["ingest__orders"]
    assert "pipeline returns" in str(bag.import_errors)
    assert "engine: 'sparc' is not in" in str(bag.import_errors)


def test_a_cron_expression_that_never_ticks_stops_one_pipeline_only(parse, write_pipeline):
    """It looks like a cron expression; left to Airflow, its error would belong to the file of all DAGs."""
    write_pipeline("orders")
    write_pipeline("returns", interval="99 * * * *")

    bag = parse()

    assert sorted(bag.dags) == ["ingest__orders"]
    assert list(bag.import_errors) == ["broken_pipelines.py"]
    assert "interval: '99 * * * *'" in str(bag.import_errors)


def test_broken_settings_are_named_instead_of_leaving_no_dags_silently(
    parse, write_pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without settings there is no DAG at all: the import error names file and key."""
    write_pipeline("orders")
    settings = tmp_path / "settings.yaml"
    settings.write_text("clusters: {local: {bootstrap_servers: 'a:1'}}\ncatalog: {}\n")
    monkeypatch.setenv("FRAZIL_SETTINGS", str(settings))

    bag = parse()

    assert bag.dags == {}
    assert f"{settings}" in bag.import_errors["ingest.py"]
    assert "catalog: unknown key, did you mean 'catalogs'?" in bag.import_errors["ingest.py"]


def test_a_task_builds_its_own_dag_only(parse, write_pipeline, monkeypatch: pytest.MonkeyPatch):
    """Airflow tells a task's process which DAG it wants; the others would only cost time."""
    write_pipeline("orders")
    write_pipeline("returns")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "ingest__returns")

    assert sorted(parse().dags) == ["ingest__returns"]


def test_the_inline_engine_needs_no_spark(parse, write_pipeline):
    """A pipeline of the inline engine runs in the task's process, so it waits for no slot of Spark's pool."""
    write_pipeline("orders", engine="inline")

    ingest = parse().dags["ingest__orders"].get_task("ingest")

    assert type(ingest).__name__ == "PythonOperator"
    assert ingest.pool == "default_pool"
    assert ingest.max_active_tis_per_dag == 1


def test_an_interval_that_no_clock_divides_keeps_its_length(parse, write_pipeline):
    """90 seconds and 7 minutes have no cron expression."""
    write_pipeline("orders", interval="7m")

    assert parse().dags["ingest__orders"].timetable.delta == timedelta(minutes=7)


def test_the_plugin_loader_runs_the_registration_only():
    """It names modules after the file alone: our `docs` or `tasks` would shadow other people's modules."""
    import sys

    from airflow import plugins_manager

    plugins_manager.ensure_plugins_loaded()

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    assert "frazil" in {plugin.name for plugin in plugins}
    loaded = {Path(getattr(module, "__file__", None) or "").name for module in list(sys.modules.values())}
    assert "frazil_plugin.py" in loaded
    assert not {"facts", "factory", "operators", "tasks", "timetable"} & set(sys.modules)
