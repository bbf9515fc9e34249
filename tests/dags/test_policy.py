"""What holds for every DAG of the project, whichever pipeline files it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG, AssetAlias, CronDataIntervalTimetable, DeltaDataIntervalTimetable

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.project import Project

pytestmark = pytest.mark.dags

EXAMPLES = {
    "ingest__customers_cdc": "customers_cdc",
    "ingest__customers_upsert": "customers_upsert",
    "ingest__payments": "payments",
    "ingest__payments_by_type": "payments_by_type",
    "ingest__pizzas": "pizzas",
    "ingest__shop_events": "shop_events",
}


@pytest.fixture
def dags(parse: Callable[[], DagBag], monkeypatch: pytest.MonkeyPatch) -> Mapping[str, DAG]:
    """The DAGs of the project as it is delivered, whatever the developer's own environment says."""
    for variable in ("FRAZIL_HOME", "FRAZIL_PIPELINES", "FRAZIL_SETTINGS"):
        monkeypatch.delenv(variable, raising=False)
    bag = parse()
    assert bag.import_errors == {}
    return bag.dags


@pytest.fixture
def pipeline(dags: Mapping[str, DAG]) -> Callable[[str], Pipeline]:
    return lambda dag_id: Project.load().pipeline(EXAMPLES[dag_id])


def test_no_pipeline_is_forgotten_and_none_appears_twice(dags: Mapping[str, DAG]):
    """The delivered pipeline files make exactly these DAGs."""
    other_dags = [
        f"{kind}__{name}" for kind in ("maintain", "dead_letters", "replay_dead_letters") for name in EXAMPLES.values()
    ]
    assert sorted(dags) == sorted([*EXAMPLES, *other_dags])


@pytest.mark.parametrize("dag_id", EXAMPLES)
def test_a_dag_says_who_is_asked_and_what_it_does(
    dags: Mapping[str, DAG], pipeline: Callable[[str], Pipeline], dag_id: str
):
    """Owner, tags, description and page come from the pipeline file."""
    dag, definition = dags[dag_id], pipeline(dag_id)

    assert dag.owner == definition.owner
    assert dag.tags == {"frazil", "ingest", definition.namespace}
    assert dag.description == definition.description
    listed = [word for destination in definition.destinations[:1] for word in (destination.table, *destination.columns)]
    for word in (*definition.source.topics, *listed, definition.dead_letters_table):
        assert f"`{word}`" in dag.doc_md


@pytest.mark.parametrize("dag_id", EXAMPLES)
def test_two_writers_of_a_table_never_run_at_once(
    dags: Mapping[str, DAG], pipeline: Callable[[str], Pipeline], dag_id: str
):
    """One run at a time, and one ingest task over all kinds of runs, in the pool of the settings."""
    dag = dags[dag_id]
    ingest = dag.get_task("ingest")

    assert dag.max_active_runs == 1
    assert ingest.max_active_tis_per_dag == 1
    assert ingest.pool == Project.load().engine(pipeline(dag_id).engine).pool


@pytest.mark.parametrize("dag_id", EXAMPLES)
def test_nothing_hangs_for_ever_and_nothing_is_tried_without_end(dags: Mapping[str, DAG], dag_id: str):
    """Every timeout and retry is set, and a run may last as long as the tries of its longest task."""
    dag = dags[dag_id]
    longest = max(task.execution_timeout for task in dag.tasks)

    for task in dag.tasks:
        assert timedelta(minutes=1) <= task.execution_timeout <= timedelta(hours=2)
        assert task.retries == 2
        assert task.retry_delay == timedelta(seconds=30)
    assert dag.dagrun_timeout >= 3 * longest


@pytest.mark.parametrize("dag_id", EXAMPLES)
def test_an_unpaused_dag_does_not_catch_up_the_past(
    dags: Mapping[str, DAG], pipeline: Callable[[str], Pipeline], dag_id: str
):
    """Catch-up is off, and the interval of the file becomes contiguous data intervals in UTC."""
    dag = dags[dag_id]

    assert dag.catchup is False
    assert isinstance(dag.timetable, CronDataIntervalTimetable | DeltaDataIntervalTimetable)
    assert dag.start_date.utcoffset() == timedelta(0)


@pytest.mark.parametrize("dag_id", EXAMPLES)
def test_plan_ingest_record_follow_each_other(dags: Mapping[str, DAG], dag_id: str):
    """A run is plan, then ingest, then record, which announces new data; plan may only tell that nothing was new."""
    dag = dags[dag_id]

    assert [task.task_id for task in dag.topological_sort()] == ["plan", "ingest", "record"]
    assert dag.get_task("plan").downstream_task_ids == {"ingest"}
    assert dag.get_task("ingest").downstream_task_ids == {"record"}
    *tables, complete = dag.get_task("record").outlets
    assert tables
    assert all(asset.uri.startswith("iceberg://lake/") for asset in tables)
    assert (
        dag.get_task("plan").outlets
        == [complete]
        == [AssetAlias(f"{EXAMPLES[dag_id]}/completeness", group="pipelines")]
    )
    assert dag.get_task("ingest").outlets == []


@pytest.mark.parametrize("dag_id", EXAMPLES)
def test_a_scheduled_run_needs_nobody_to_fill_in_the_form(dags: Mapping[str, DAG], dag_id: str):
    """Every field of the trigger form has a type and a default that fits it."""
    params = dags[dag_id].params

    assert list(params) == ["mode", "from", "to", "reason", "max_records"]
    params.validate()
    assert params.pop("mode") == "ingest"
    assert set(params.dump().values()) == {None}


def test_ledger_announces_auto_created_tables(dags: Mapping[str, DAG]) -> None:
    """Nobody knows their names before the records come, so the ledger speaks for them."""
    [asset, _] = dags["ingest__shop_events"].get_task("record").outlets

    assert asset.uri == "iceberg://lake/shop/shop_events__ledger"
