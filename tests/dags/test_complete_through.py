"""Through when a pipeline is complete, told by its tasks and waited for by other DAGs: run by Airflow in a child process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from frazil_airflow.complete_through import CompleteThrough

pytestmark = [pytest.mark.dags, pytest.mark.timeout(180)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "scheduling.md"

TELLER = """
with DAG("teller", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC), params={"through": None}):

    @task(outlets=[completeness_alias("pizzas")])
    def say(params=None, outlet_events=None):
        if params["through"] is not None:
            emit_completeness(outlet_events, {"pipeline": "pizzas", "complete_through": params["through"]})

    say()
"""

RUNS = """
import json
from airflow.dag_processing.dagbag import DagBag
from airflow.utils import db

db.initdb()
dags = DagBag().dags
waiting = dags["pizzas_of_the_hour"].get_task("all_there")
waiting.mode, waiting.poke_interval, waiting.timeout = "poke", 0.1, 1

def tell(through):
    assert dags["teller"].test(run_conf={"through": through}).state == "success"

def states(second):
    date = datetime(2026, 5, 1, 10, 0, second, tzinfo=UTC)
    run = dags["pizzas_of_the_hour"].test(logical_date=date)
    return {of.task_id: str(of.state) for of in run.get_task_instances()}

found = [states(0)]
tell("2026-05-01T09:59:59.999+00:00")
found.append(states(1))
tell("2026-05-01T10:00:00.000+00:00")
tell(None)
found.append(states(2))
print("PROBE " + json.dumps(found))
"""


def test_dag_starts_once_its_hour_is_complete(tmp_path: Path) -> None:
    """The example of the page waits while nothing or an earlier instant was told, and goes on when its own is reached."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "dags").mkdir()
    names = "from frazil_airflow.outputs.assets import completeness_alias, emit_completeness\n"
    (tmp_path / "dags" / "example.py").write_text(example + names + TELLER, encoding="utf-8")
    env = {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{tmp_path}/airflow.db",
        "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("include", "plugins")),
    }
    command = [sys.executable, "-c", "from datetime import UTC, datetime\n" + RUNS]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    line = next(line for line in done.stdout.splitlines() if line.startswith("PROBE "))
    waits = {"all_there": "failed", "report": "upstream_failed"}
    assert json.loads(line.removeprefix("PROBE ")) == [waits, waits, {"all_there": "success", "report": "success"}]


@pytest.mark.parametrize("instant", ["None", "yesterday", "2026-05-01T10:00:00"])
def test_task_without_data_interval_fails_at_once(instant: str) -> None:
    """A run by hand has no data interval: it fails at once and says what to give."""
    waiting = CompleteThrough(task_id="all_there", pipeline="pizzas", instant=instant)

    with pytest.raises(AirflowFailException, match=r"no instant with an offset from UTC \[FRZ-106\]\n  next: "):
        waiting.poke({})
