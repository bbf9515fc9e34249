"""A pipeline whose jobs an operator of the user's own starts: its DAG, what the operator gets, and what becomes of the outcome."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from frazil.error_codes import INTERNAL, TOPIC_MISSING
from frazil.errors import Retryable, Terminal
from frazil.pipeline.settings.settings import unknown_names
from frazil.project import Project
from frazil.run.state.tables import open_tables
from frazil.spark.submit.handover import Handover, Outcome
from frazil_airflow.dags.factory import ingest_dag, is_by_operator
from frazil_airflow.tasks import ingest_tasks, job_operators
from frazil_airflow.tasks.job_operators import Job

pytestmark = pytest.mark.dags

MakeProject = Callable[..., Project]


@pytest.fixture
def cluster_project(project: MakeProject, tmp_path: Path) -> Project:
    """A project whose pipeline `orders` is on an engine that operators start jobs on."""
    job_project = project()
    settings = json.loads(job_project.settings_file.read_text())
    engines = {"spark": {}, "emr": {"type": "operator", "pool": "emr"}}
    job_project.settings_file.write_text(json.dumps(settings | {"engines": engines}))
    file = tmp_path / "pipelines" / "orders.yaml"
    file.write_text(file.read_text().replace("engine: spark", "engine: emr") + "maintenance: {engine: spark}\n")
    return Project.load()


def on_emr(job: Job) -> BaseOperator:
    """What a user writes."""
    return SparkSubmitOperator(
        task_id=job.task_id,
        conn_id="emr",
        application="s3://code/ingest.py",
        application_args=list(job.arguments),
        deploy_mode="cluster",
    )


def test_dag_has_the_operator_between_plan_and_outcome(cluster_project: Project) -> None:
    """plan, then somebody's operator in the engine's pool, then the outcome, whatever the operator says, then the record."""
    dag = ingest_dag(cluster_project, cluster_project.pipeline("orders"), {"emr": on_emr})

    assert {task.task_id: sorted(task.upstream_task_ids) for task in dag.tasks} == {
        "plan": [],
        "ingest": ["plan"],
        "outcome": ["ingest", "plan"],
        "record": ["outcome"],
    }
    ingest, outcome = dag.get_task("ingest"), dag.get_task("outcome")
    assert (ingest.pool, ingest.max_active_tis_per_dag, type(ingest)) == ("emr", 1, SparkSubmitOperator)
    assert outcome.trigger_rule == "all_done_min_one_success"
    assert "xcom_pull(task_ids='outcome')" in str(dag.get_task("record").op_args)


def test_arguments_are_templates_of_a_templated_field(cluster_project: Project) -> None:
    """The operator knows nothing of Frazil: Airflow fills in what `plan` pushed."""
    (ingest,) = (
        task
        for task in ingest_dag(cluster_project, cluster_project.pipeline("orders"), {"emr": on_emr}).tasks
        if task.task_id == "ingest"
    )
    pushed = {"order": "s3://lake/ledger/metadata/frazil-orders-job-1.json", "attempt": "a1"}

    class Pulled:
        def xcom_pull(self, task_ids: str, key: str) -> str:
            return pushed[key] if task_ids == "plan" else ""

    ingest.render_template_fields({"ti": Pulled()})  # type: ignore[typeddict-item]

    assert ingest.application_args == ["--pipeline", "orders", "--order", pushed["order"], "--attempt", "a1"]


def test_operator_with_another_id_is_refused(cluster_project: Project) -> None:
    """The DAG's other tasks would look for it in vain."""
    with pytest.raises(Terminal, match="expected an operator with task_id 'ingest'"):
        ingest_dag(
            cluster_project,
            cluster_project.pipeline("orders"),
            {"emr": lambda _: BashOperator(task_id="mine", bash_command="true")},
        )


def test_pipelines_of_operators_are_left_to_their_own_file(cluster_project: Project) -> None:
    """dags/ingest.py can't start them."""
    assert is_by_operator(cluster_project, cluster_project.pipeline("orders"))
    assert list(unknown_names(cluster_project.pipeline("orders"), cluster_project.settings)) == []


def test_maintenance_on_an_operator_is_refused(cluster_project: Project) -> None:
    """It runs batches only."""
    pipeline = cluster_project.pipeline("orders")
    alone = pipeline.model_copy(update={"maintenance": pipeline.maintenance.model_copy(update={"engine": None})})

    (problem,) = unknown_names(alone, cluster_project.settings)

    assert problem.startswith("maintenance.engine: emr is of type operator")


def test_session_on_an_operator_is_refused(cluster_project: Project, tmp_path: Path) -> None:
    """Its order has no tables to lie beside before the first batch, and nobody starts another job or tells completeness."""
    file = tmp_path / "pipelines" / "orders.yaml"
    text = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("interval:"))
    file.write_text(f"{text}\ninterval: 10s\nsession_for: 10m\n")
    project = Project.load()

    (problem,) = unknown_names(project.pipeline("orders"), project.settings)

    assert problem.startswith("session_for: emr is of type operator")


@pytest.fixture
def handed_over(cluster_project: Project, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, str], Handover]:
    """What `plan` pushes, and the driver's side of it."""
    open_tables(cluster_project.lake_of(cluster_project.pipeline("orders")), cluster_project.pipeline("orders"))
    monkeypatch.setattr(ingest_tasks, "plan", lambda _pipeline, **_context: '{"plan": 1}')
    pushed: dict[str, str] = {}

    class Ti:
        def xcom_push(self, key: str, value: str) -> None:
            pushed[key] = value

    class Run:
        run_id = "manual__1"

    context: dict[str, Any] = {"ti": Ti(), "dag_run": Run(), "params": {}, "outlet_events": {}}
    assert job_operators.plan("orders", **context) == '{"plan": 1}'
    arguments = ["--pipeline", "orders", "--order", pushed["order"], "--attempt", pushed["attempt"]]
    return pushed, Handover.from_arguments(cluster_project, "ingest", arguments)


def test_plan_leaves_the_order_beside_the_ledger(handed_over: tuple[dict[str, str], Handover]) -> None:
    """Three short arguments are all that the driver needs; no XCom has a secret."""
    pushed, driver = handed_over

    assert "/shop/orders__ledger/metadata/frazil-orders-job-" in pushed["order"]
    assert driver.read_order() == ('{"plan": 1}', True)


def test_outcome_is_the_result_of_the_job(handed_over: tuple[dict[str, str], Handover]) -> None:
    """Another try of the task reads it again."""
    pushed, driver = handed_over
    driver.write_outcome(Outcome(result='{"looked_at":3}'))

    for _try in range(2):
        assert job_operators.outcome("orders", pushed["order"], pushed["attempt"]) == '{"looked_at":3}'


@pytest.mark.parametrize("error", [TOPIC_MISSING.terminal("gone"), Retryable("gone", code=INTERNAL)])
def test_error_of_the_job_fails_the_outcome_for_good(
    handed_over: tuple[dict[str, str], Handover], error: Terminal | Retryable
) -> None:
    """Another try of this task would read the same; the operator's own retries are for the job."""
    pushed, driver = handed_over
    driver.write_outcome(Outcome(error=error))

    with pytest.raises(AirflowFailException, match="gone"):
        job_operators.outcome("orders", pushed["order"], pushed["attempt"])


def test_job_without_outcome_is_named_lost(handed_over: tuple[dict[str, str], Handover]) -> None:
    """The next run asks the tables."""
    pushed, _ = handed_over

    with pytest.raises(AirflowFailException, match="left no outcome"):
        job_operators.outcome("orders", pushed["order"], pushed["attempt"])


def test_dry_run_without_tables_says_where_it_can_be_done(cluster_project: Project) -> None:
    """A job elsewhere can't read this machine's folders."""
    assert cluster_project.lake("lake").find_table("shop.orders__ledger") is None

    with pytest.raises(Terminal, match="frazil run orders --dry-run --engine inline"):
        job_operators._hand_over("orders", "manual__1", '{"plan": 1}')
