"""What a run looks at before it merges rows into tables; the merging itself is Spark's, see tests/spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from frazil.errors import Terminal
from frazil.iceberg.commit.summary_state import BRANCH_KEY, IDENTIFIER_KEY
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.run.state.context import EngineNeeded
from tests.fan_out import TABLES, fanned_out, file_of, fill
from tests.operations import LEDGER, drop, lake, repair, request, scope

MakeShop = Callable[..., Any]
APPENDED = "{table: shop.refunds, "
KEY = IDENTIFIER_KEY.format("orders")


def _merged(shop: Any, destination: str) -> Any:
    """The same shop, with another destination `shop.refunds`; a run would need Spark, planning one does not."""
    text = file_of(shop).replace("engine: inline", "engine: spark")
    assert APPENDED in text
    return shop.with_pipeline(text.replace(APPENDED, f"{APPENDED}{destination}, "))


def test_appended_rows_are_merged_only_after_confirmation(shop: MakeShop) -> None:
    """A destination that the pipeline appended to becomes a merged one only by a person's word that keys are unique."""
    orders = fanned_out(shop)
    orders.run()
    plan_run(_merged(orders, "write: upsert, identifier: [id]").project, orders.pipeline, request())  # no rows yet
    orders = orders.with_pipeline(file_of(orders))
    fill(orders, range(20))
    orders.run()
    assert {name: lake(orders).load_table(name).properties.get(KEY) for name in TABLES} == dict.fromkeys(TABLES, "[]")

    merged = _merged(orders, "write: upsert, identifier: [id]")
    with pytest.raises(Terminal, match=r"adds rows in table shop.refunds, .* merges rows by id"):
        plan_run(merged.project, merged.pipeline, request())

    table = lake(merged).load_table("shop.refunds")
    table.transaction().set_properties({KEY: '["id"]'}).commit_transaction()
    assert plan_run(merged.project, merged.pipeline, request()).plan is None

    appended = orders.with_pipeline(file_of(orders))
    with pytest.raises(Terminal, match=r"merges rows by id in table shop.refunds, .* adds rows"):
        appended.run()


def test_table_without_merge_key_is_not_created(shop: MakeShop) -> None:
    """Nothing says what the key is: the run is refused before it makes any table, and takes the table's once it has one."""
    orders = _merged(fanned_out(shop), "write: upsert")
    with pytest.raises(Terminal, match="no such table yet"):
        plan_run(orders.project, orders.pipeline, request())
    assert LEDGER not in lake(orders).tables()

    keyed = _merged(orders, "write: upsert, identifier: [id]")
    plan_run(keyed.project, keyed.pipeline, request())
    merged_file = _merged(orders, "write: upsert")
    assert plan_run(merged_file.project, merged_file.pipeline, request()).position is not None
    assert scope(merged_file).pipeline.destination("shop.refunds").identifier == ("id",)


def test_dropped_table_is_repaired_once_the_file_names_the_key_that_only_the_table_had(shop: MakeShop) -> None:
    """Each refusal names the next step, and the last one works: nothing guesses by what rows were merged."""
    orders = _merged(fanned_out(shop), "write: upsert, identifier: [id]")
    plan_run(orders.project, orders.pipeline, request())
    orders = _merged(orders, "write: upsert")
    _land(orders, range(4))
    drop(orders, "shop.refunds")
    with pytest.raises(Terminal, match=r"shop\.refunds is gone") as error:
        plan_run(orders.project, orders.pipeline, request())
    assert "frazil repair orders shop.refunds" in str(error.value.next_step)
    with pytest.raises(Terminal, match="names no identifier") as keyless:
        repair(orders, "shop.refunds", replays=False)
    assert "name the columns under identifier" in str(keyless.value.next_step)
    keyed = _merged(orders, "write: upsert, identifier: [id]")
    assert repair(keyed, "shop.refunds", replays=False) is not None
    assert lake(keyed).load_table("shop.refunds").schema().identifier_field_names() == {"id"}


def test_decided_batch_is_finished_where_it_was_decided_despite_edit(shop: MakeShop) -> None:
    """The file names a branch that the waiting batch is not on: the batch is finished where it was decided."""
    orders = _merged(fanned_out(shop), "write: upsert, identifier: [id]")
    plan_run(orders.project, orders.pipeline, request())
    orders = _merged(orders, "write: upsert")
    table = lake(orders).load_table("shop.refunds")
    table.transaction().set_properties({BRANCH_KEY.format("orders"): "main"}).commit_transaction()
    _land(orders, range(4))
    edited = orders.with_pipeline(
        file_of(orders)
        .replace("engine: inline", "engine: spark")
        .replace(APPENDED, f"{APPENDED}write: upsert, branch: night, ")
    )
    waiting = plan_run(edited.project, edited.pipeline, request()).plan
    assert waiting is not None
    assert waiting.waits


def test_dropped_identifier_does_not_keep_decided_batch_from_finishing(shop: MakeShop) -> None:
    """Somebody drops the identifier fields while a batch waits: that is refused only once the batch is finished."""
    orders = _merged(fanned_out(shop), "write: upsert, identifier: [id]")
    plan_run(orders.project, orders.pipeline, request())
    orders = _merged(orders, "write: upsert")
    _land(orders, range(4))
    with lake(orders).load_table("shop.refunds").update_schema() as update:
        update.set_identifier_fields()
    waiting = plan_run(orders.project, orders.pipeline, request()).plan
    assert waiting is not None
    assert waiting.waits


def _land(shop: Any, numbers: range) -> None:
    """Decide a batch, whose merge waits for Spark."""
    fill(shop, numbers)
    plan = plan_run(shop.project, shop.pipeline, request()).plan
    assert plan is not None
    with pytest.raises(EngineNeeded):
        ingest(shop.project, shop.pipeline, plan, stage_inline, lambda _: None)
