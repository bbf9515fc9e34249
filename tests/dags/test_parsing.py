"""Parsing dags/: what is imported, which pipelines become DAGs, and what becomes of broken files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from frazil.project import Project
from frazil.runtime.home import project_root

pytestmark = pytest.mark.dags

EARLY = "trigger: {records: 500, every: 5s}\ncatch_up: 1000\n"
KINDS = ("dead_letters", "ingest", "maintain", "replay_dead_letters")
ORDERS = [f"{kind}__orders" for kind in KINDS]
"""The DAGs of one pipeline."""

HEAVY = {"confluent_kafka", "duckdb", "openlineage", "pandas", "pyarrow", "pyiceberg", "pyspark"}


def errors(bag: DagBag) -> dict[str, str]:
    """Import errors by the name of the file."""
    return {Path(file).name: error for file, error in bag.import_errors.items()}


def only_error(bag: DagBag, file: str) -> str:
    """The one import error, which must be of this file."""
    assert list(errors(bag)) == [file]
    return errors(bag)[file]


def test_parsing_imports_no_engine(
    probe: Callable[[Mapping[str, str]], dict[str, Any]],
    write_pipeline: Callable[..., Path],
    pipelines: Path,
    tmp_path: Path,
):
    """The DAG processor and every task parse these files: a heavy import there is paid again and again.

    What looks at the lag is among them: the triggerer loads it in its event loop.
    """
    for number in range(5):
        write_pipeline(f"orders{number}", more=EARLY)

    report = probe({"FRAZIL_PIPELINES": str(pipelines), "FRAZIL_HOME": str(tmp_path)})

    assert report["errors"] == {}
    of_pipelines = [f"{kind}__orders{number}" for kind in KINDS for number in range(5)]
    assert report["dags"] == sorted(of_pipelines)
    assert HEAVY & {module.partition(".")[0] for module in report["modules"]} == set()


def test_tasks_read_the_files_as_they_are_now(parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]):
    """A run that began before a deploy would land batches without a destination that others have."""
    write_pipeline("orders")
    assert {dag.disable_bundle_versioning for dag in parse().dags.values()} == {True}


def test_the_same_files_give_the_same_dags(parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]):
    """A DAG that differs at every parse would be a new version every few seconds."""
    from airflow.serialization.serialized_objects import DagSerialization

    write_pipeline("orders")
    write_pipeline("ticks", interval="7m")
    write_pipeline("visits", more=EARLY)

    first, second = ({name: DagSerialization.to_dict(dag) for name, dag in parse().dags.items()} for _ in range(2))

    assert len(first) == 12
    assert first == second


def test_trigger_leaves_schedule_and_backfills(parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]):
    """Beside its interval, which still makes data intervals and can be backfilled, the DAG starts when its asset is told to."""
    from airflow.serialization.decoders import decode_timetable
    from airflow.serialization.encoders import encode_timetable

    write_pipeline("visits", more=EARLY)

    dag = parse().dags["ingest__visits"]

    timetable = decode_timetable(encode_timetable(dag.timetable))
    assert timetable.periodic
    assert timetable.timetable.summary == "*/5 * * * *"
    [asset] = dag.timetable.asset_condition.objects
    assert (asset.uri, len(asset.watchers)) == ("frazil://visits/waiting", 1)
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "ingest", "record", "catch_up"]


def test_one_broken_file_does_not_stop_the_other_pipelines(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path], pipelines: Path
):
    """The broken one is an import error that names file, key and near match; the good one has its DAG."""
    write_pipeline("orders")
    broken = write_pipeline("returns")
    broken.write_text(broken.read_text().replace("interval:", "intervall:"))

    bag = parse()

    assert sorted(bag.dags) == ORDERS
    error = only_error(bag, "broken_pipelines.py")
    assert str(broken) in error
    assert "intervall: unknown key, did you mean 'interval'?" in error


def test_files_with_values_that_nothing_can_store_stop_no_other_pipeline(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path], pipelines: Path
):
    """Each of them took every DAG of the folder away. The message names the file, and the line where a text has one."""
    write_pipeline("orders")
    lines = {
        "digits": f"catch_up: 0x{'f' * 20_000}\n",
        "half": 'description: "a\\ud800b"\n',
        "nul": 'value: {format: avro, schema_file: "a\\0b"}\n',
    }
    bad = {name: write_pipeline(name, more=line) for name, line in lines.items()}
    wide = write_pipeline("wide", more=f"trigger: {{records: {2**64}, every: 5s}}\n")
    write_pipeline("sixty", more=f"description: 1{':1' * 300}:1.5\n")
    schemas = pipelines.parent / "schemas"
    schemas.mkdir()
    for number in range(1_100):
        (schemas / f"a{number}.proto").write_text(f'import "a{number + 1}.proto";\n')
    (schemas / "a1100.proto").write_text("message M {int64 id = 1;}\n")
    deep = write_pipeline("deep", more="value: {format: protobuf, message: M, schema_file: a0.proto}\n")

    bag = parse()

    assert {"ingest__orders", "ingest__sixty"} == {name for name in bag.dags if name.startswith("ingest__")}
    error = only_error(bag, "broken_pipelines.py")
    for path in bad.values():
        line = len(path.read_text().splitlines())
        assert f"{path}: [FRZ-101]\n  line {line}: " in error
    assert f"{wide}: [FRZ-101]\n  trigger.records: expected a whole number between" in error
    assert f"{deep}: [FRZ-101]\n  value.schema_file: expected at most 1,000 imported files" in error


def test_a_name_that_the_settings_do_not_know_stops_one_pipeline_only(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]
):
    """A readable file may still name an engine that is not there."""
    write_pipeline("orders")
    write_pipeline("returns", engine="sparc")

    bag = parse()

    assert sorted(bag.dags) == ORDERS
    error = only_error(bag, "broken_pipelines.py")
    assert "pipeline returns" in error
    assert "engine: the settings have no 'sparc'" in error


def test_a_cron_expression_that_never_ticks_stops_one_pipeline_only(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]
):
    """There is no 31 February: left to Airflow, the scheduler would find out, again and again."""
    write_pipeline("orders")
    write_pipeline("returns", interval="0 0 31 2 *")

    bag = parse()

    assert sorted(bag.dags) == ORDERS
    assert "interval: '0 0 31 2 *'" in only_error(bag, "broken_pipelines.py")


def test_broken_settings_are_named_instead_of_leaving_no_dags_silently(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without settings there is no DAG at all: the import error names file and key."""
    write_pipeline("orders")
    settings = tmp_path / "settings.yaml"
    settings.write_text("clusters: {local: {bootstrap_servers: 'a:1'}}\ncatalog: {}\n")
    monkeypatch.setenv("FRAZIL_SETTINGS", str(settings))

    bag = parse()

    assert bag.dags == {}
    error = errors(bag)["ingest.py"]
    assert str(settings) in error
    assert "catalog: unknown key, did you mean 'catalogs'?" in error


def test_a_task_builds_its_own_dag_only(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    """Airflow tells a task's process which DAG it wants; the others would only cost time."""
    write_pipeline("orders")
    write_pipeline("returns")
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "ingest__returns")

    assert sorted(parse().dags) == ["ingest__returns"]


def test_the_inline_engine_needs_no_spark(parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]):
    """A pipeline of the inline engine runs in the task's process, so it waits for no slot of Spark's pool."""
    write_pipeline("orders", engine="inline")

    ingest = parse().dags["ingest__orders"].get_task("ingest")

    assert type(ingest).__name__ == "InlineIngestOperator"
    assert ingest.pool == "default_pool"
    assert ingest.max_active_tis_per_dag == 1


def test_timeouts_of_run_leave_time_for_its_session(parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]):
    """Runs of the schedule follow each other by the session's length, may take it on top, and one stays at a time."""
    write_pipeline("orders", interval="10s", engine="inline", more="session_for: 10m\n")

    dag = parse().dags["ingest__orders"]

    ingest = dag.get_task("ingest")
    assert dag.timetable.expression == "*/10 * * * *"
    assert dag.dagrun_timeout == timedelta(hours=6, minutes=40)
    assert ingest.execution_timeout == timedelta(hours=2, minutes=10)
    assert (dag.max_active_runs, ingest.max_active_tis_per_dag) == (2, 1)
    assert [outlet.name for outlet in ingest.outlets] == ["orders/completeness"]


@pytest.mark.parametrize(
    ("engine", "operator"),
    [
        ("type: connect\n    managed: true\n    master: local[2]", "SparkConnectIngestOperator"),
        ("type: submit", "AutoIngestOperator"),
        ("master: yarn\n    deploy_mode: cluster", "SparkConnectIngestOperator"),
    ],
)
def test_engine_auto_waits_for_slot_of_spark_pool(
    parse: Callable[[], DagBag],
    write_pipeline: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    operator: str,
):
    """`auto` may start Spark, so its task waits for a slot of the pool of the engine that it may start."""
    write_pipeline("orders", engine="auto")
    delivered = (project_root() / "include" / "settings.yaml").read_text()
    (tmp_path / "settings.yaml").write_text(
        delivered.replace("type: connect\n    managed: true\n    master: local[2]", engine)
    )
    monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))

    bag = parse()

    ingest = bag.dags["ingest__orders"].get_task("ingest")
    assert type(ingest).__name__ == operator
    assert ingest.pool == "frazil_spark"
    assert "maintain__orders" in bag.dags


def test_an_interval_that_no_clock_divides_keeps_its_length(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]
):
    """90 seconds and 7 minutes have no cron expression."""
    write_pipeline("orders", interval="7m")

    assert parse().dags["ingest__orders"].timetable.delta == timedelta(minutes=7)


def test_the_plugin_loader_runs_the_registration_only():
    """It names modules after the file alone: our `docs` or `tasks` would shadow other people's modules."""
    from airflow import plugins_manager

    plugins_manager.ensure_plugins_loaded()

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    assert "frazil" in {plugin.name for plugin in plugins}
    loaded = {Path(getattr(module, "__file__", None) or "").name for module in list(sys.modules.values())}
    assert "frazil_plugin.py" in loaded
    assert not {"facts", "factory", "operators", "tasks", "timetable"} & set(sys.modules)


def test_pipelines_without_catch_up_load_no_models_of_airflows_database():
    """Each task's process parses the DAG file: what only `catch_up` needs would cost all others a quarter of a second."""
    code = "import sys, frazil_airflow.dags.factory; print('airflow.models.serialized_dag' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert shown.stdout.splitlines()[-1] == "False"


def test_edited_file_makes_exactly_one_new_dag_version(
    parse: Callable[[], DagBag], write_pipeline: Callable[..., Path]
):
    """Airflow versions a DAG by the hash of its serialised form: each edit that matters changes it once, then it stays."""
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.serialization.serialized_objects import DagSerialization

    def versions() -> dict[str, str]:
        dags = parse().dags.items()
        return {name: SerializedDagModel.hash(DagSerialization.to_dict(dag)) for name, dag in dags}

    file = write_pipeline("orders")
    write_pipeline("others")
    before = versions()
    file.write_text(f"# a remark\n{file.read_text()}")
    remarked = versions()
    file.write_text(file.read_text().replace("interval: ", 'interval: "10m"  # '))
    edited, again = versions(), versions()

    assert remarked == before
    assert {name for name in before if edited[name] != before[name]} == {"ingest__orders"}
    assert again == edited


def test_connect_engine_needs_no_airflow_connection(
    parse: Callable[[], DagBag],
    write_pipeline: Callable[..., Path],
    project: Callable[..., Project],
    tmp_path: Path,
):
    """An engine of type connect needs no Airflow connection; its pools bound its tasks as those of spark-submit."""
    project()
    write_pipeline("orders", engine="warm")
    settings = json.loads((tmp_path / "settings.yaml").read_text())
    warm = {"type": "connect", "url": "sc://127.0.0.1:1", "pool": "warm", "maintenance_pool": "idle"}
    (tmp_path / "settings.yaml").write_text(json.dumps(settings | {"engines": {"warm": warm}}))

    dags = parse().dags

    ingest, maintain = dags["ingest__orders"].get_task("ingest"), dags["maintain__orders"].get_task("maintain")
    assert type(ingest).__name__ == "SparkConnectIngestOperator"
    assert type(maintain).__name__ == "SparkConnectMaintainOperator"
    assert (ingest.pool, maintain.pool, ingest.max_active_tis_per_dag) == ("warm", "idle", 1)
