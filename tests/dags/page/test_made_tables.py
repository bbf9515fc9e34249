"""The page of a pipeline whose records name tables that its file does not list, with a real broker and real tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.kafka.client.cluster import Cluster, OutgoingRecord
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil_airflow.page.project_source import ProjectSource
from tests import made
from tests.dags.page.conftest import Open
from tests.produce import produce

TABLE = "shop.eu"


@pytest.fixture
def source(cluster: Cluster, tmp_path: Path) -> Iterator[ProjectSource]:
    """A project whose one batch made a table, once its condition was read."""
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(cluster, topic, 1)
    produce(cluster, topic, [OutgoingRecord(key=None, value=made.record(number, TABLE)) for number in range(3)])
    (tmp_path / "orders.yaml").write_text(
        made.FILE.format(
            topic=topic, most=10, otherwise="dead_letter", template=made.COLUMNS, listed="", max_records=1_000
        )
    )
    port = cluster.bootstrap_servers.rpartition(":")[2]
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_PIPELINES": str(tmp_path), "FRAZIL_KAFKA_PORT": port}
    project = Project.load(env)
    planned = plan_run(project, project.pipeline("orders"), RunRequest("r1"))
    assert planned.plan is not None
    ingest(project, project.pipeline("orders"), planned.plan, stage_inline, lambda _: None)
    source = ProjectSource(env)
    with source.watch:
        assert source.watch.wait(60)
        yield source


def test_auto_created_table_is_on_pages(open_page: Open):
    """It stands among the pipeline's tables with its health, and has its snapshots and its schema."""
    page = open_page()
    overview = page.get("/pipelines/orders").text
    row = next(match for match in re.findall(r"<tr>.*?</tr>", overview, re.DOTALL) if f"?table={TABLE}" in match)
    assert "destination" in row
    assert re.search(r"</meter>\d+</span>", row)

    snapshots, schema = (
        page.get(f"/pipelines/orders/{view}", params={"table": TABLE}).text for view in ("snapshots", "schema")
    )
    assert f"<option selected>{TABLE}</option>" in snapshots
    assert re.search(r'<td>append</td><td class="num">1</td><td class="num">3</td>', snapshots)
    assert "Schema 0" in schema
    assert "in force" in schema
