"""Two pipelines that bring columns to one table."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from frazil.batch.position import RunRequest
from frazil.kafka.admin.topics import create_topic
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from tests.evolving import evolving, put, types
from tests.integration.conftest import environment
from tests.integration.run.conftest import AtFailpoint
from tests.operations import assert_clean, lake, send

MakeShop = Callable[..., Any]

SECOND_PIPELINE = """
name: other
source: {{topics: [{topic}]}}
engine: inline
destinations: [{{table: {table}}}]
dead_letters: {{table: shop.refused}}
"""


def with_second_pipeline(orders: Any, table: str = "shop.orders") -> Any:
    """A second pipeline, `other`, with a topic of its own, into one of the tables."""
    topic = f"other-{uuid.uuid4().hex[:8]}"
    create_topic(orders.cluster, topic, 1)
    (orders.project.pipelines_folder / "other.yaml").write_text(SECOND_PIPELINE.format(topic=topic, table=table))
    return replace(orders, project=Project.load(environment(orders.project)), topic=topic)


def run_other(second_shop: Any) -> None:
    pipeline = second_shop.project.pipeline("other")
    planned = plan_run(second_shop.project, pipeline, RunRequest(str(uuid.uuid4())))
    if planned.plan is not None:
        ingest(second_shop.project, pipeline, planned.plan, stage_inline, lambda _: None)


def put_other(second_shop: Any, *values: Any) -> None:
    send(second_shop, {0: [json.dumps(value).encode() for value in values]})


@pytest.mark.short("evolving")
@pytest.mark.parametrize("point", ["staged", "evolving", "evolved", "audited", "decide.committing"])
def test_columns_of_two_pipelines_at_same_moment_are_kept(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """Wherever one pipeline stands while the other changes the table and lands: both land, into the columns of both."""
    orders = evolving(shop)
    second_shop = with_second_pipeline(orders)
    put(orders, {"id": 1})
    orders.run()
    put(orders, {"id": 2, "ours": "x", "at": {"a": 1}})
    put_other(second_shop, {"id": 3, "theirs": "y", "at": {"b": 2}})

    at_failpoint(point, lambda: run_other(second_shop))
    orders.run()

    assert types(orders).keys() == {"id", "ours", "theirs", "at"}
    landed = {row["id"]: (row["ours"], row["theirs"], row["at"]) for row in orders.rows()}
    assert landed == {
        1: (None, None, None),
        2: ("x", None, {"a": 1, "b": None}),
        3: (None, "y", {"a": None, "b": 2}),
    }
    assert_clean(orders)


def test_decided_batch_does_not_wait_for_widened_table(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """A follower whose struct got a field and whose number was widened, behind the decision, takes its files."""
    orders = evolving(
        shop, "{table: shop.orders}", "{table: shop.copies, columns: {id: int, at: 'struct<a: int>'}, evolve: widen}"
    )
    put(orders, {"id": 1, "at": {"a": 1}})
    second_shop = with_second_pipeline(orders, "shop.copies")

    def rival() -> None:
        put_other(second_shop, {"id": 2**40, "at": {"a": 2**40, "b": "x"}})
        run_other(second_shop)

    orders.run()
    put(orders, {"id": 2, "at": {"a": 2}})
    at_failpoint("decide.committed", rival)

    orders.run()

    assert types(orders, "shop.copies")["id"] == "long"
    assert sorted(row["id"] for row in orders.rows("shop.copies")) == [1, 2, 2**40]
    assert lake(orders).load_table("shop.copies").scan(row_filter="id == 2").to_arrow().num_rows == 1
    assert_clean(orders)


@pytest.mark.parametrize(
    ("field_names", "document", "theirs", "expected"),
    [
        ("exact", {"id": 2, "price": 5}, {"id": 3, "price": "x"}, {"price": "string"}),
        ("case_insensitive", {"id": 2, "Price": 5}, {"id": 3, "price": 7}, {"price": "long"}),
    ],
)
def test_column_named_or_typed_otherwise_by_rival_ends_no_run(
    shop: MakeShop,
    at_failpoint: AtFailpoint,
    field_names: str,
    document: dict[str, Any],
    theirs: dict[str, Any],
    expected: dict[str, str],
) -> None:
    """Between the look at the records and the change: they are held against the column as it is, and the run goes on."""
    orders = evolving(shop)
    file = orders.project.pipelines_folder / "orders.yaml"
    file.write_text(file.read_text() + f"value: {{field_names: {field_names}}}\n")
    orders = replace(orders, project=Project.load(environment(orders.project)))
    second_shop = with_second_pipeline(orders)
    put(orders, {"id": 1})
    orders.run()
    put(orders, document)
    put_other(second_shop, theirs)

    at_failpoint("staged", lambda: run_other(second_shop))
    orders.run()

    assert types(orders) == {"id": "long"} | expected
    landed = {row["id"]: row["price"] for row in orders.rows()}
    assert landed == ({1: None, 2: 5, 3: 7} if field_names != "exact" else {1: None, 2: "5", 3: "x"})
    assert_clean(orders)
