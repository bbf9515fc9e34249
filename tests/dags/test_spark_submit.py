"""The ingest task: the spark-submit line it builds, and what it makes of the job's exit code."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from frazil.batch.plan import PlannedTopic, RunPlan
from frazil.error_codes import TOPIC_MISSING
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Stopped, Terminal, error_to_json
from frazil.project import Project
from frazil.run.batches.session import Session
from frazil.runtime.home import private_folder
from frazil.spark.submit.handover import Handover, Outcome
from frazil.spark.submit.submission import Submission
from frazil_airflow.tasks import ingest_tasks
from frazil_airflow.tasks.operators import SparkConnectIngestOperator, SparkIngestOperator

pytestmark = pytest.mark.dags

JobEnds = Callable[[Submission], "str | None"]

PLAN = RunPlan("orders", "r", "2026-05-01T10:00:00.000+00:00", "c", {}, complete=False).to_json()


@pytest.fixture
def ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SparkIngestOperator:
    """The task with its plan rendered, on a master of two local threads."""
    monkeypatch.setenv("AIRFLOW_CONN_FRAZIL_SPARK", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setenv("FRAZIL_HOME", str(tmp_path))
    return SparkIngestOperator(
        task_id="ingest", pipeline="orders", plan_json=PLAN, asset_name="lake.shop.orders", conn_id="frazil_spark"
    )


@pytest.fixture
def job(tmp_path: Path) -> Submission:
    return Submission(
        application=tmp_path / "ingest.py",
        name="frazil orders manual__1",
        jars=("/jars/a.jar", "/jars/b.jar"),
        conf={"spark.ui.enabled": "false"},
        private={"spark.own": "hunter2"},
        env={"FRAZIL_HOME": str(tmp_path)},
        driver_memory="1g",
    )


def test_deploy_mode_cluster_is_refused_at_once(ingest: SparkIngestOperator, monkeypatch: pytest.MonkeyPatch):
    """A connection that asks for the deploy mode cluster fails the task at once, without another try."""
    extra = '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}'
    monkeypatch.setenv("AIRFLOW_CONN_FRAZIL_SPARK", extra)

    with pytest.raises(AirflowFailException, match="set deploy-mode to client"):
        ingest.execute({"run_id": "r"})


def test_spark_is_started_with_what_the_submission_says(ingest: SparkIngestOperator, job: Submission):
    """Master from the connection, everything else from the submission."""
    ingest.use(job)

    hook = ingest._get_hook()
    command = hook._build_spark_submit_command(ingest.application)

    assert command[:3] == ["spark-submit", "--master", "local[2]"]
    assert command[command.index("--conf") + 1] == "spark.ui.enabled=false"
    assert command[command.index("--jars") + 1] == "/jars/a.jar,/jars/b.jar"
    assert command[command.index("--name") + 1] == job.name
    assert command[-1] == str(job.application)
    assert hook._env["FRAZIL_HOME"] == job.env["FRAZIL_HOME"]


def test_spark_submit_beside_python_is_found_without_its_folder_on_the_path(
    ingest: SparkIngestOperator, job: Submission, monkeypatch: pytest.MonkeyPatch
):
    """A worker that was started by its whole path has a PATH without the environment's programs."""
    monkeypatch.setenv("PATH", "/usr/bin")
    ingest.use(job)

    hook = ingest._get_hook()
    hook._build_spark_submit_command(ingest.application)
    assert shutil.which("spark-submit", path=hook._env["PATH"])


def test_task_log_has_no_partition_values_of_spark_lines(
    ingest: SparkIngestOperator, job: Submission, caplog: pytest.LogCaptureFixture
):
    """Lines of the JVM quote paths of data files; the provider logs them, and its error ends with the last of them."""
    ingest.use(job)
    hook = ingest._get_hook()

    with caplog.at_level(logging.INFO):
        hook._process_spark_submit_log(
            iter(["WARN Lost task: java.io.IOException: /wh/o/data/email=alice-4711/0.parquet\n"])
        )

    assert "/wh/o/data/email=…/0.parquet" in hook._submit_log_tail
    assert "alice" not in caplog.text + hook._submit_log_tail


SUBMIT = """#!{python}
import json, os, sys
from pathlib import Path
told = dict(zip(sys.argv, sys.argv[1:]))
with Path("{folder}/jobs").open("a") as jobs:
    print(*sys.argv[1:], file=jobs)
order, attempt = Path(told["--order"]), told["--attempt"]
Path("{folder}/plan").write_text(json.loads(order.read_text())["order"])
if "--properties-file" in told:
    Path("{folder}/properties").write_text(Path(told["--properties-file"]).read_text())
body = dict(v=1, attempt=attempt, error=json.loads(os.environ["MET"]), result=os.environ["RESULT"] or None)
if os.environ["MET"] != "{{}}":
    order.with_name(f"{{order.stem}}-{{attempt}}.json").write_text(json.dumps(body))
print("INFO noise")
print("frazil: 900 records staged")
sys.exit(int(os.environ["CODE"]))
"""
"""A spark-submit whose job meets what MET says: an error or none; of `{}` it dies, and leaves no outcome."""


def test_order_of_a_dry_run_stays_on_this_machine(
    ingest: SparkIngestOperator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """It lands nothing: no samples of records beside the tables, and no right to write there is needed."""
    monkeypatch.setattr(
        "frazil_airflow.tasks.operators.load_project_for_job", lambda: Project.load({"FRAZIL_HOME": str(tmp_path)})
    )
    ingest.plan_json = replace(RunPlan.from_json(PLAN), mode="dry_run").to_json()

    assert ingest.handover("manual__1").location == str(tmp_path / "plans")


@pytest.fixture
def submit_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ingest: SparkIngestOperator) -> None:
    """That program in place of Spark's own, and orders in a folder of the test."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(SUBMIT.format(python=sys.executable, folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    orders = private_folder(tmp_path / "orders")

    def handover(run: str) -> Handover:
        return Handover.begin(Project.load({"FRAZIL_HOME": str(tmp_path)}), str(orders), "orders", run)

    monkeypatch.setattr(ingest, "handover", handover)


def ending(job: Submission, met: FrazilError | None, result: str = "") -> Submission:
    """A job that ends so."""
    code = 0 if met is None else met.exit_code
    environment = {"CODE": str(code), "MET": "null" if met is None else error_to_json(met), "RESULT": result}
    return replace(job, env={**job.env, **environment})


def dying(job: Submission, code: int) -> Submission:
    """A job that is killed."""
    return replace(job, env={**job.env, "CODE": str(code), "MET": "{}", "RESULT": ""})


@pytest.fixture
def job_ends(submit_program: None, monkeypatch: pytest.MonkeyPatch, ingest: SparkIngestOperator):
    """Run the task with a job that ends in a certain way."""

    def run(job: Submission) -> str | None:
        monkeypatch.setattr(ingest, "submission", lambda: job)
        try:
            return ingest.execute({"run_id": "manual__1", "outlet_events": {}})  # type: ignore[typeddict-item]
        finally:
            ingest._hook._submit_sp.stdout.close()  # the provider leaves it to the end of the task's process

    return run


def test_errors_for_person_are_not_retried(job_ends: JobEnds, job: Submission):
    """The task fails for good, with the job's own error instead of a command line."""
    with pytest.raises(AirflowFailException) as failure:
        job_ends(ending(job, TOPIC_MISSING.terminal("gone", next_step="create it")))

    assert str(failure.value) == "gone [FRZ-204]\n  next: create it"


@pytest.mark.parametrize("kind", [Retryable, OutcomeUnknown, Stopped])
def test_temporary_errors_are_retried(job_ends: JobEnds, job: Submission, kind: type[FrazilError]):
    """Kafka away, outcome unknown, asked to stop: another try reads the tables and carries on."""
    with pytest.raises(kind, match="no broker"):
        job_ends(ending(job, kind("no broker", code=TOPIC_MISSING)))


@pytest.mark.parametrize("code", [0, 70, 137, 1])
def test_job_without_outcome_is_tried_again(job_ends: JobEnds, job: Submission, code: int):
    """It was killed, or its driver was lost: the tables answer."""
    with pytest.raises(Retryable, match=f"exit code {code} and left no outcome") as failure:
        job_ends(dying(job, code))

    assert "spark-submit" not in str(failure.value)


@pytest.mark.parametrize(("code", "kind"), [(78, AirflowFailException), (79, Stopped), (76, OutcomeUnknown)])
def test_exit_code_counts_where_no_outcome_could_be_left(
    job_ends: JobEnds, job: Submission, code: int, kind: type[Exception]
):
    """Settings or storage that the driver can't use; a stop for which time ran out, after which a session starts no job."""
    with pytest.raises(kind, match=f"exit code {code} and left no outcome"):
        job_ends(dying(job, code))


def test_a_job_that_ends_well_is_a_success(job_ends: JobEnds, job: Submission):
    """Nothing is raised, and nothing is handed on."""
    assert job_ends(ending(job, None)) is None


def test_plan_of_many_partitions_is_passed_by_storage(job_ends: JobEnds, job: Submission, tmp_path: Path):
    """The job's arguments name the order; it is gone afterwards, as its outcome is."""
    job_ends(ending(job, None))

    arguments = (tmp_path / "jobs").read_text().split()
    assert arguments[-6:-4] == ["--pipeline", "orders"]
    assert (tmp_path / "plan").read_text() == PLAN
    assert list((tmp_path / "orders").iterdir()) == []


def test_next_try_takes_the_result_of_a_lost_task(
    job_ends: JobEnds, job: Submission, ingest: SparkIngestOperator, tmp_path: Path
):
    """The job did its order, and the task was lost before it took note: no Spark is started again."""
    lost = ingest.handover("manual__1")
    lost.hand_over(PLAN)
    lost.write_outcome(Outcome(result='{"looked_at":3}'))

    ingest.submission = lambda: ending(job, None)  # type: ignore[method-assign]
    assert ingest.execute({"run_id": "manual__1", "outlet_events": {}}) == '{"looked_at":3}'  # type: ignore[typeddict-item]

    assert not (tmp_path / "jobs").exists()
    assert job_ends(ending(job, None, "again")) == "again"


def test_conf_of_engine_is_passed_in_file_instead_of_argument(
    job_ends: JobEnds, job: Submission, tmp_path: Path, ingest: SparkIngestOperator
):
    """It may be secret: spark-submit finds it in a file, which is gone afterwards; neither command line nor operator has it."""
    job_ends(ending(job, None))

    arguments = (tmp_path / "jobs").read_text()
    assert "hunter2" not in arguments
    assert "hunter2" not in str(ingest.conf)
    assert "spark.own=hunter2" in (tmp_path / "properties").read_text()
    assert not Path(arguments.split("--properties-file ")[1].split()[0]).exists()


def test_result_of_dry_run_reaches_next_task(job_ends: JobEnds, job: Submission):
    """The job leaves it in its outcome; the task returns it."""
    assert job_ends(ending(job, None, '{"looked_at":3}')) == '{"looked_at":3}'


def test_session_starts_spark_with_first_plan_for_it(
    job_ends: JobEnds, job: Submission, tmp_path: Path, ingest: SparkIngestOperator, monkeypatch: pytest.MonkeyPatch
):
    """The job begins with the first plan that this process does not land, and hands back what it tells at its end."""
    order = replace(RunPlan.from_json(PLAN), until="2026-05-01T10:10:00.000+00:00")
    ended_order, outcome_text = replace(order, cluster="found"), '{"complete_through":null}'
    ingest.plan_json = order.to_json()

    def stay(pipeline: str, arguments: str, _: object, submit: Callable[[RunPlan], str | None]) -> str:
        assert (pipeline, arguments) == ("orders", order.to_json())
        assert not (tmp_path / "plan").exists()
        return f"{submit(ended_order)}"

    monkeypatch.setattr("frazil_airflow.tasks.ingest_tasks.run_session", stay)

    assert job_ends(ending(job, None, outcome_text)) == outcome_text
    assert RunPlan.from_json((tmp_path / "plan").read_text()) == ended_order
    assert ingest.plan_json == order.to_json()


@pytest.fixture
def submits(submit_program: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ingest: SparkIngestOperator):
    """Run a session that hands a plan over for each job."""
    ingest.plan_json = replace(RunPlan.from_json(PLAN), until="2026-05-01T10:10:00.000+00:00").to_json()

    def run(*jobs: Submission) -> list[str]:
        waiting = list(jobs)
        monkeypatch.setattr(ingest, "submission", lambda: waiting.pop(0))

        def stay(_: str, order: str, __: object, submit: Callable[[RunPlan], str | None]) -> None:
            for _job in jobs:
                try:
                    submit(RunPlan.from_json(order))
                finally:
                    ingest._hook._submit_sp.stdout.close()  # as above

        monkeypatch.setattr("frazil_airflow.tasks.ingest_tasks.run_session", stay)
        ingest.execute({"run_id": "manual__1", "outlet_events": {}})  # type: ignore[typeddict-item]
        return (tmp_path / "jobs").read_text().splitlines()

    return run


def test_each_job_of_session_starts_with_its_own_settings(
    submits: Callable[..., list[str]], job: Submission, tmp_path: Path
):
    """The provider's hook keeps what it was made with; each job is started with what is found then, and watched once."""
    second_job = replace(ending(job, None), conf={"spark.ui.enabled": "true"}, jars=("/jars/c.jar",))

    first, second = submits(ending(job, None), second_job)

    assert ("spark.ui.enabled=false" in first, "/jars/a.jar,/jars/b.jar" in first) == (True, True)
    assert ("spark.ui.enabled=true" in second, "/jars/c.jar" in second) == (True, True)
    assert [thread.name for thread in threading.enumerate()].count("parent-watch") == 1


def test_dead_spark_is_retryable_in_session(submits: Callable[..., list[str]], job: Submission):
    """What may pass by itself is the session's to try again, in another job."""
    for failing in (dying(job, 70), dying(job, 1), ending(job, Retryable("no broker", code=TOPIC_MISSING))):
        with pytest.raises(Retryable):
            submits(failing)


def test_job_that_somebody_ended_is_not_started_again(
    submits: Callable[..., list[str]], job: Submission, ingest: SparkIngestOperator
):
    """`frazil stop`, what a person must mend, and a task that Airflow ends: the session starts no other job."""
    for met, kind in ((Stopped, Stopped), (Terminal, AirflowFailException)):
        with pytest.raises(kind):
            submits(ending(job, met("said", code=TOPIC_MISSING)))

    ingest.on_kill()
    with pytest.raises(AirflowException):
        submits(dying(job, 1))


def test_engine_of_another_dag_is_not_started(write_pipeline: Callable[..., Path], monkeypatch: pytest.MonkeyPatch):
    """Jobs go on the engine of the task's DAG alone; once the file names another, another try is needed, at once."""
    write_pipeline("orders", interval="10s", more="session_for: 10m\n")
    order = replace(RunPlan.from_json(PLAN), until="2026-05-01T10:10:00.000+00:00")

    def serve(session: Session, _: object, submit: Callable[[RunPlan], str | None]) -> None:
        session.pipeline = session.pipeline.model_copy(update={"engine": "auto"})
        assert submit(order) == "done"  # where auto stands for the very engine
        session.pipeline = session.pipeline.model_copy(update={"engine": "warm"})
        submit(order)

    monkeypatch.setattr("frazil.run.batches.session.run_session_with_jobs", serve)

    with pytest.raises(FrazilError, match="names another engine than its DAG") as refused:
        ingest_tasks.run_session("orders", order.to_json(), {}, lambda _: "done")

    assert not isinstance(refused.value, Retryable)


def test_a_missing_connection_is_named_instead_of_looking_for_a_yarn_cluster():
    """The provider would take `--master yarn` without a word."""
    ingest = SparkIngestOperator(
        task_id="ingest", pipeline="orders", plan_json=PLAN, asset_name="lake.shop.orders", conn_id="nowhere"
    )

    with pytest.raises(AirflowFailException, match="no Airflow connection 'nowhere'"):
        ingest.execute({"run_id": "manual__1"})


def test_the_table_link_leads_to_the_events_of_the_table(ingest: SparkIngestOperator):
    """The assets page of the UI, filtered by the asset's name."""
    (link,) = ingest.operator_extra_links

    assert link.get_link(ingest, ti_key=None) == "/assets?name_pattern=lake.shop.orders"


def test_job_without_its_server_is_not_tried_again(project: Callable[..., Project], tmp_path: Path):
    """The task starts the job as a process, passes on what it said of the server, and leaves another try to Airflow."""
    project()
    settings = json.loads((tmp_path / "settings.yaml").read_text())
    engines = {"warm": {"type": "connect", "url": "sc://127.0.0.1:9", "token": "hunter2"}}
    (tmp_path / "settings.yaml").write_text(json.dumps(settings | {"engines": engines}))
    file = tmp_path / "pipelines" / "orders.yaml"
    file.write_text(file.read_text().replace("engine: spark", "engine: warm"))
    topics = {"o": PlannedTopic("t", (0,), (5,))}
    planned = RunPlan("orders", "manual__1", "2026-01-01T00:00:00+00:00", "c", topics, complete=True)
    task = SparkConnectIngestOperator(
        task_id="ingest", pipeline="orders", plan_json=planned.to_json(), asset_name="lake.shop.orders"
    )

    with pytest.raises(
        Retryable, match=r"engine warm: the spark connect server at sc://127\.0\.0\.1:9 does not answer"
    ) as failed:
        task.execute({"run_id": "manual__1"})

    assert "hunter2" not in str(failed.value)
