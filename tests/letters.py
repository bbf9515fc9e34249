"""Dead letters that are good now, and their replay: for tests with a shop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frazil.batch.changes import LetterChoice
from frazil.run.repair.dead_letter_replay import ReplayResult, replay_dead_letters
from tests.operations import LETTERS, ORDERS, landed, request, scope

ANY = LetterChoice()
EVERY = [(0, offset) for offset in range(12)]


def with_lenient_file(orders: Any) -> Any:
    """The shop under a pipeline file that takes what was bad: any id is text, and nothing is required."""
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    return orders.with_pipeline(text.replace("id: {type: long, required: true}", "name2: string"))


def run_dead_letter_replay(orders: Any, choice: LetterChoice = ANY, **options: Any) -> ReplayResult:
    return replay_dead_letters(scope(orders), choice, request(), **options)


def still_open(orders: Any) -> list[tuple[int, int]]:
    rows = orders.rows(LETTERS)
    return sorted((row["partition"], row["offset"]) for row in rows if row["landed_batch"] is None)


def good_letters(shop: Callable[..., Any]) -> Any:
    """Three batches with six letters; under the present pipeline file they are good."""
    orders = landed(shop)
    table = orders.project.lake("lake").load_table(ORDERS)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("id")
        update.add_column("name2", table.schema().find_type("name"))
    return with_lenient_file(orders)
