"""`frazil pause`, `resume` and `stop`: whether a pipeline's DAG runs, and the run that is at work now."""

import platform
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from frazil.cli import console
from frazil.cli.options import Json, PipelineName

if TYPE_CHECKING:
    from frazil.errors import FrazilError, Retryable
    from frazil.local.drivers import Driver
    from frazil.local.home import Home

_WAIT_SECONDS: Final = 35.0
"""How long `stop` waits: the 30 s that a run may take to end, and what a machine under load takes longer."""


def pause(pipeline: PipelineName) -> None:
    """Pause a pipeline's DAG: no further run begins by itself. A run at work goes on, and the position stays.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    _set_paused(pipeline, paused=True)


def resume(pipeline: PipelineName) -> None:
    """Let a paused DAG run again. Its next run reads on where the last one ended: nothing is skipped.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    _set_paused(pipeline, paused=False)


def stop(pipeline: PipelineName, *, as_json: Json = False) -> None:
    """End the runs of a pipeline that are at work: a batch that is decided is finished, one that is not is discarded.

    Runs of Airflow are marked failed, without another try; processes on this machine get SIGTERM. All end within 30 s, which
    is waited for as far as they share the home: on this machine, and in other containers. The next run comes on schedule and
    goes on from there, unless the pipeline is paused first.

    FRAZIL_AIRFLOW_URL, FRAZIL_AIRFLOW_USER and FRAZIL_AIRFLOW_PASSWORD name another Airflow than the embedded one.
    """
    from frazil.local.airflow import remote_url
    from frazil.local.drivers import drivers
    from frazil.project import Project

    project = Project.load()
    name, home = project.pipeline(pipeline).name, project.home
    began = time.monotonic()
    failed, unasked = _fail_runs(home, name)
    asked = drivers(home, name)
    for driver in asked:
        driver.ask_to_stop()
    left = _wait_for_end(home, name)
    if left:
        raise _still_at_work(name, left) from unasked
    seconds = time.monotonic() - began
    if as_json:
        facts = {
            "pipeline": name,
            "failed_runs": failed,
            "stopped": [of.run for of in asked],
            "seconds": round(seconds, 1),
        }
        console.print_json(facts)
    else:
        for run in failed:
            console.say(f"{name}: Airflow's run {run} is marked failed")
        for driver in asked:
            console.say(f"{name}: run {driver.run} ({_place(driver)}) ended in {seconds:.1f} s")
        if failed and not asked and remote_url():
            console.say(f"{name}: none of its processes is seen from here; those of Airflow's machines end within 30 s")
        if not failed and not asked:
            console.say(f"{name}: no run is at work{' on this machine' if unasked else ''}")
    if unasked is not None:
        raise unasked


def _set_paused(pipeline: str, *, paused: bool) -> None:
    from frazil.local import airflow
    from frazil.project import Project

    project = Project.load()
    dag = _dag(project.pipeline(pipeline).name)
    with airflow.any_api(project.home) as api:
        if paused:
            api.pause(dag)
        else:
            api.unpause(dag)
    console.say(f"{pipeline}: DAG {dag} {'is paused' if paused else 'runs on its schedule'}")


def _fail_runs(home: "Home", pipeline: str) -> tuple[list[str], "FrazilError | None"]:
    """Mark the runs of Airflow failed that have not ended; none where no Airflow is named and the embedded one is down.

    Returns those that it marked, and why it could not ask: what runs on this machine is stopped all the same.
    """
    from frazil.errors import FrazilError
    from frazil.local import airflow, stack

    failed: list[str] = []
    try:
        if airflow.remote_url() is None and not stack.status(home).is_running("airflow"):
            return failed, None
        with airflow.any_api(home) as api:
            for run in api.runs(_dag(pipeline), states=("running", "queued")):
                api.fail(run.dag_id, run.run_id)
                failed.append(run.run_id)
    except FrazilError as error:
        return failed, error
    return failed, None


def _wait_for_end(home: "Home", pipeline: str) -> "list[Driver]":
    """Wait until no process that shares the home runs batches of a pipeline. Returns those that still do."""
    from frazil.local.drivers import drivers
    from frazil.local.waiting import until

    until(lambda: not drivers(home, pipeline), _WAIT_SECONDS)
    return drivers(home, pipeline)


def _still_at_work(pipeline: str, left: "Sequence[Driver]") -> "Retryable":
    from frazil.errors import Retryable

    pids = " ".join(str(driver.pid) for driver in left)
    there = "" if all(driver.is_here for driver in left) else " there, if `frazil stop` there does not help"
    return Retryable(
        f"pipeline {pipeline}: {', '.join(map(_place, left))} did not end within {_WAIT_SECONDS:.0f} s",
        next_step=f"end it by force, which loses nothing: kill -9 {pids}{there}",
    )


def _place(driver: "Driver") -> str:
    return f"process {driver.pid}" + ("" if driver.host == platform.node() else f" on {driver.host}")


def _dag(pipeline: str) -> str:
    return f"ingest__{pipeline}"
