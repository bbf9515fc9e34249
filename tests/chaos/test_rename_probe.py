from __future__ import annotations
from functools import partial
from tests.chaos import child
from frazil.batch.request import RunRequest
from frazil.run.plan import plan_run
from frazil.run.ingest import ingest
from frazil.run.inline import stage_inline

def test_probe(lab):
    orders = lab()
    orders.fill(0)
    orders.run()
    path = orders.project.pipelines_folder / "orders.yaml"
    path.write_text(path.read_text().replace("name: orders\nstart", "name: sales\nstart"))
    p = orders.project
    planned = plan_run(p, p.pipeline("sales"), RunRequest("x"))
    print(planned)
    ingest(p, p.pipeline("sales"), planned.plan, stage_inline, print)
    print(len(orders.rows()))
    assert 0
