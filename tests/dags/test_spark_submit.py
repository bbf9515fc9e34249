"""The ingest task: the spark-submit line it builds, and what it makes of the job's exit code."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from frazil.batch.plan import PlannedTopic, RunPlan
from frazil.errors import FrazilError, Retryable
from frazil.project import Project
from frazil.run.batches.session import Session
from frazil.spark.submit.submission import Submission
from frazil_airflow.tasks import ingest_tasks
from frazil_airflow.tasks.operators import SparkConnectIngestOperator, SparkIngestOperator

pytestmark = pytest.mark.dags

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
    ingest.take(job)

    hook = ingest._get_hook()
    command = hook._build_spark_submit_command(ingest.application)

    assert command[:3] == ["spark-submit", "--master", "local[2]"]
    assert command[command.index("--conf") + 1] == "spark.ui.enabled=false"
    assert command[command.index("--jars") + 1] == "/jars/a.jar,/jars/b.jar"
    assert command[command.index("--name") + 1] == job.name
    assert command[-1] == str(job.application)
    assert hook._env["FRAZIL_HOME"] == job.env["FRAZIL_HOME"]


def test_task_log_has_no_partition_values_of_spark_lines(
    ingest: SparkIngestOperator, job: Submission, caplog: pytest.LogCaptureFixture
):
    """Lines of the JVM quote paths of data files; the provider logs them, and its error ends with the last of them."""
    ingest.take(job)
    hook = ingest._get_hook()

    with caplog.at_level(logging.INFO):
        hook._process_spark_submit_log(
            iter(["WARN Lost task: java.io.IOException: /wh/o/data/email=alice-4711/0.parquet\n"])
        )

    assert "/wh/o/data/email=…/0.parquet" in hook._submit_log_tail
    assert "alice" not in caplog.text + hook._submit_log_tail


@pytest.fixture
def job_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ingest: SparkIngestOperator, job: Submission):
    """Run the task against a `spark-submit` that writes a line and ends with the given exit code."""

    def run(code: int, writes: str = "") -> str | None:
        program = tmp_path / "bin" / "spark-submit"
        program.parent.mkdir()
        program.write_text(
            f'#!/bin/sh\necho "$@" >{tmp_path}/arguments\nfor last; do :; done\ncat "${{last#@}}" >{tmp_path}/plan\n'
            f"cat $(echo \"$@\" | sed 's/.*--properties-file //; s/ .*//') >{tmp_path}/properties\n"
            f"echo INFO noise\necho frazil: said {code}\n"
            f"[ -z '{writes}' ] || echo -n '{writes}' >$(echo \"$@\" | sed 's/.*--result //; s/ .*//')\nexit {code}\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setattr(ingest, "submission", lambda: job)
        try:
            return ingest.execute({"run_id": "manual__1", "outlet_events": {}})  # type: ignore[typeddict-item]
        finally:
            ingest._hook._submit_sp.stdout.close()  # the provider leaves it to the end of the task's process

    return run


def test_errors_for_person_are_not_retried(job_ends: Callable[[int], None]):
    """Exit code 78: the task fails for good, with the job's own last line instead of a command line."""
    with pytest.raises(AirflowFailException) as failure:
        job_ends(78)

    assert str(failure.value) == "said 78"


@pytest.mark.parametrize("code", [70, 75, 76, 1])
def test_temporary_errors_are_retried(job_ends: Callable[[int], None], code: int):
    """Kafka away, outcome unknown, parent lost, Spark broken: another try reads the tables and carries on."""
    with pytest.raises(AirflowException, match=f"Error code is: {code}") as failure:
        job_ends(code)

    assert not isinstance(failure.value, AirflowFailException)


def test_a_job_that_ends_well_is_a_success(job_ends: Callable[[int], str | None]):
    """Exit code 0 raises nothing, and nothing is handed on."""
    assert job_ends(0) is None


def test_plan_of_many_partitions_is_passed_as_file(job_ends: Callable[[int], None], tmp_path: Path):
    """The job gets the plan as a file, which is gone afterwards."""
    job_ends(0)

    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[-4:-1] == ["--pipeline", "orders", "--plan"]
    assert (tmp_path / "plan").read_text() == PLAN
    assert not Path(arguments[-1].removeprefix("@")).exists()


def test_conf_of_engine_is_passed_in_file_instead_of_argument(
    job_ends: Callable[[int], None], tmp_path: Path, ingest: SparkIngestOperator
):
    """It may be secret: spark-submit finds it in a file, which is gone afterwards; neither command line nor operator has it."""
    job_ends(0)

    arguments = (tmp_path / "arguments").read_text()
    assert "hunter2" not in arguments
    assert "hunter2" not in str(ingest.conf)
    assert "spark.own=hunter2" in (tmp_path / "properties").read_text()
    assert not Path(arguments.split("--properties-file ")[1].split()[0]).exists()


def test_result_of_dry_run_reaches_next_task(
    job_ends: Callable[..., str | None], tmp_path: Path, ingest: SparkIngestOperator
):
    """The job writes it to a file; the task returns it, and the file is gone. Without one it returns nothing."""
    assert job_ends(0, writes='{"looked_at":3}') == '{"looked_at":3}'

    result = Path((tmp_path / "arguments").read_text().split("--result ")[1].split()[0])
    assert not result.exists()


def test_session_starts_spark_with_first_plan_for_it(
    job_ends: Callable[..., str | None], tmp_path: Path, ingest: SparkIngestOperator, monkeypatch: pytest.MonkeyPatch
):
    """The job begins with the first plan that this process does not land, and hands back what it tells at its end."""
    order = replace(RunPlan.from_json(PLAN), until="2026-05-01T10:10:00.000+00:00")
    found, told = replace(order, cluster="found"), '{"complete_through":null}'
    ingest.plan_json = order.to_json()

    def stay(pipeline: str, given: str, _: object, submit: Callable[[RunPlan], str | None]) -> str:
        assert (pipeline, given) == ("orders", order.to_json())
        assert not (tmp_path / "plan").exists()
        return f"{submit(found)}"

    monkeypatch.setattr("frazil_airflow.tasks.ingest_tasks.stay", stay)

    assert job_ends(0, writes=told) == told
    assert RunPlan.from_json((tmp_path / "plan").read_text()) == found
    assert ingest.plan_json == order.to_json()


@pytest.fixture
def submits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ingest: SparkIngestOperator):
    """Run a session that hands a plan over for each job: its environment says how it ends, a file what it was started with."""
    program = tmp_path / "bin" / "spark-submit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/jobs\necho "frazil: said $CODE"\nexit $CODE\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
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

        monkeypatch.setattr("frazil_airflow.tasks.ingest_tasks.stay", stay)
        ingest.execute({"run_id": "manual__1", "outlet_events": {}})  # type: ignore[typeddict-item]
        return (tmp_path / "jobs").read_text().splitlines()

    return run


def ending(job: Submission, code: int) -> Submission:
    return replace(job, env={**job.env, "CODE": str(code)})


def test_each_job_of_session_starts_with_its_own_settings(
    submits: Callable[..., list[str]], job: Submission, tmp_path: Path
):
    """The provider's hook keeps what it was made with; each job is started with what is found then, and watched once."""
    other = replace(ending(job, 0), conf={"spark.ui.enabled": "true"}, jars=("/jars/c.jar",))

    first, second = submits(ending(job, 0), other)

    assert ("spark.ui.enabled=false" in first, "/jars/a.jar,/jars/b.jar" in first) == (True, True)
    assert ("spark.ui.enabled=true" in second, "/jars/c.jar" in second) == (True, True)
    assert [thread.name for thread in threading.enumerate()].count("parent-watch") == 1


@pytest.mark.parametrize("code", [70, 75, 76, 1])
def test_dead_spark_is_retryable_in_session(submits: Callable[..., list[str]], job: Submission, code: int):
    """What may pass by itself is the session's to try again, in another job."""
    with pytest.raises(Retryable, match=f"said {code}"):
        submits(ending(job, code))


def test_job_that_somebody_ended_is_not_started_again(
    submits: Callable[..., list[str]], job: Submission, ingest: SparkIngestOperator
):
    """`frazil stop`, what a person must mend, and a task that Airflow ends: the session starts no other job."""
    for code, kind in ((79, AirflowException), (78, AirflowFailException)):
        with pytest.raises(kind):
            submits(ending(job, code))

    ingest.on_kill()
    with pytest.raises(AirflowException):
        submits(ending(job, 1))


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
        ingest_tasks.stay("orders", order.to_json(), {}, lambda _: "done")

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
