"""The functions of docs/spark-by-operators.md, held against the providers' own classes as far as they are installed."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator

from frazil.spark.submit.configuration import job_conf
from frazil_airflow.tasks.job_operators import Job

pytestmark = pytest.mark.dags

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark-by-operators.md"
CODE: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
PULLED = ("{{ order }}", "{{ attempt }}")
JOB = Job(
    "ingest",
    "daily_orders",
    "/opt/frazil/spark_jobs/ingest.py",
    ("--pipeline", "daily_orders", "--order", PULLED[0], "--attempt", PULLED[1]),
    job_conf(writes=True),
    {},
)


def provider(code: str) -> str:
    """The module of the operator of a block."""
    (imported,) = re.findall(r"from (airflow\.providers\S+) import", code)
    return str(imported)


def is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def operator(code: str) -> BaseOperator:
    """What the function of a block returns for a job."""
    tree = ast.parse(code)
    tree.body = [node for node in tree.body if isinstance(node, ast.ImportFrom | ast.FunctionDef)]
    (function,) = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    names: dict[str, Any] = {}
    exec(compile(tree, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    with DAG("ingest__daily_orders", schedule=None):
        job_operator = names[function](JOB)
    assert isinstance(job_operator, BaseOperator)
    return job_operator


@pytest.mark.parametrize("code", [code for code in CODE if is_installed(provider(code))], ids=provider)
def test_documented_operator_takes_the_arguments(code: str) -> None:
    """The class takes what the page hands it, and Airflow fills the templates in."""
    job = operator(code)
    job.render_template_fields({"order": "s3://lake/order.json", "attempt": "a1"})  # type: ignore[typeddict-unknown-key]

    rendered = repr([getattr(job, field) for field in job.template_fields])
    assert job.task_id == "ingest"
    for argument in ("--pipeline", "daily_orders", "--order", "s3://lake/order.json", "--attempt", "a1"):
        assert argument in rendered
    assert "spark.sql.session.timeZone" in repr(vars(job))


def test_page_has_a_function_for_each_platform() -> None:
    """None is left out where its provider is not installed."""
    assert len(CODE) == 6
    assert all(compile(code, str(PAGE), "exec") for code in CODE)
