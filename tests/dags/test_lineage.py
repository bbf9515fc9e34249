"""OpenLineage, through the classes of Airflow's provider: which operator tells what, and that it costs nothing when it is off."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.utils.state import TaskInstanceState
from openlineage.client.serde import Serde
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from frazil.batch.plan import PlannedTopic, RunPlan
from frazil.project import Project
from frazil.report.lineage import Lineage, Name, TableWritten, TopicRead
from frazil_airflow.outputs.lineage import operator_lineage
from frazil_airflow.tasks.operators import InlineIngestOperator, SparkIngestOperator, SparkMaintainOperator

pytestmark = pytest.mark.dags

ROOT = Path(__file__).resolve().parents[2]
PLAN = RunPlan(
    "orders", "manual__1", "2026-01-01T00:00:00.000+00:00", "c", {"a": PlannedTopic("id", (0,), (5,))}, complete=True
)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True, doc="Number of the order"),
    NestedField(2, "place", StructType(NestedField(3, "city", StringType()))),
)


@pytest.fixture
def ingest(write_pipeline: Callable[..., Path]) -> InlineIngestOperator:
    """The operator of a pipeline whose destination is there, and empty."""
    write_pipeline("orders", engine="inline")
    lake = Project.load().lake("lake")
    Path(str(lake.warehouse).removeprefix("file://")).mkdir(parents=True)
    lake.create_table("shop.orders", SCHEMA, PartitionSpec(), {})
    with DAG("ingest__orders", schedule=None):
        return InlineIngestOperator(task_id="ingest", pipeline="orders", plan_json=PLAN.to_json())


def extracted_lineage(operator: Any, state: TaskInstanceState) -> dict[str, Any]:
    """What the provider's extractor gets from an operator."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    run, instance = SimpleNamespace(run_id="manual__1"), SimpleNamespace()
    return event_datasets(ExtractorManager().extract_metadata(run, operator, state, instance))


def event_datasets(lineage: Any) -> dict[str, Any]:
    """Datasets as they leave in an event."""
    return {name: [Serde.to_dict(dataset) for dataset in getattr(lineage, name)] for name in ("inputs", "outputs")}


def test_start_event_has_topic_and_table(ingest: InlineIngestOperator):
    """The provider asks the operator itself: START has the topic of the plan and the destination with its columns."""
    lineage = extracted_lineage(ingest, TaskInstanceState.RUNNING)

    (topic,) = lineage["inputs"]
    (table,) = lineage["outputs"]
    servers = Project.load().settings.clusters["local"].bootstrap_servers
    assert (topic["namespace"], topic["name"]) == (f"kafka://{servers}", "a")
    assert (table["namespace"], table["name"].endswith("/warehouse/shop/orders")) == ("file", True)
    fields = table["facets"]["schema"]["fields"]
    assert [(field["name"], field["type"], field.get("description")) for field in fields] == [
        ("id", "long", "Number of the order"),
        ("place", "struct", None),
    ]
    assert [(field["name"], field["type"]) for field in fields[1]["fields"]] == [("city", "string")]
    assert "outputStatistics" not in table.get("outputFacets", {})


def test_run_that_landed_nothing_claims_no_table(ingest: InlineIngestOperator):
    """COMPLETE tells what the ledger has of this run: another run may have landed its records."""
    lineage = extracted_lineage(ingest, TaskInstanceState.SUCCESS)

    assert ([dataset["name"] for dataset in lineage["inputs"]], lineage["outputs"]) == (["a"], [])


def test_counts_of_run_are_in_its_event():
    """Rows, files and bytes of this run, its snapshot, and the name that the table has in its catalog."""
    table = TableWritten(
        name=Name("s3://lake", "shop/orders"),
        known_as=Name("https://catalog.example.org/api", "shop.orders"),
        columns=(NestedField(1, "id", LongType()),),
        snapshot_id=7136527834682345123,
        rows=9,
        files=2,
        bytes=2_048,
    )
    lineage = event_datasets(
        operator_lineage(Lineage((TopicRead(Name("kafka://b1:9092", "orders"), 12, 640),), (table,)))
    )

    facts = lineage["outputs"][0]["outputFacets"]["outputStatistics"]
    assert (facts["rowCount"], facts["fileCount"], facts["size"]) == (9, 2, 2_048)
    facets = lineage["outputs"][0]["facets"]
    assert facets["version"]["datasetVersion"] == "7136527834682345123"
    assert facets["storage"]["storageLayer"] == "iceberg"
    (known_as,) = facets["symlinks"]["identifiers"]
    assert (known_as["namespace"], known_as["name"], known_as["type"]) == (*_parts(table.known_as), "TABLE")
    assert lineage["inputs"][0]["inputFacets"]["inputStatistics"]["rowCount"] == 12


def _parts(name: Name) -> tuple[str, str]:
    return name.namespace, name.name


def test_only_ingest_operators_claim_rows_from_topic():
    """It moves no rows; both ingest operators do."""
    asked_of = "get_openlineage_facets_on_complete"

    assert all(hasattr(operator, asked_of) for operator in (SparkIngestOperator, InlineIngestOperator))
    assert not hasattr(SparkMaintainOperator, asked_of)


@pytest.mark.parametrize(("transport", "loads"), [({}, False), ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True)])
def test_lineage_loads_only_with_transport(transport: dict[str, str], loads: bool):
    """The Spark operator would load OpenLineage in each task's process; with a transport it does, to hand lineage on."""
    code = "import frazil_airflow.tasks.operators, sys; print('openlineage.client' in sys.modules)"
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT / "include"), str(ROOT / "plugins")])}

    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | paths | transport, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines()[-1] == str(loads)
