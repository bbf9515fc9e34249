"""Two pipelines over one table, and a table under two names: rows of one are never taken for the other's."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from frazil.batch.facts import ClusterFacts
from frazil.batch.position import RunRequest
from frazil.errors import Terminal
from frazil.iceberg.commit.summary_state import TOPICS_KEY, mirror
from frazil.iceberg.ledger.ledger import DEAD_LETTER_SCHEMA, UNPARTITIONED
from frazil.kafka.admin.observe import observe
from frazil.kafka.admin.topics import create_topic
from frazil.project import Project
from frazil.run.batches.plan import plan_run
from frazil.run.batches.session import ingest
from frazil.run.staging.stage import stage_inline
from frazil.run.state import context
from frazil.verify.check import verify
from tests.integration.conftest import environment
from tests.operations import LETTERS, ORDERS, assert_clean, bad, lake, letters, order, repair, replay, reset, send

AtFailpoint = Callable[..., None]
MakeShop = Callable[..., Any]

OTHER_LETTERS = "shop.refused"
PIPELINE = """
name: {name}
source: {{topics: [{topic}]}}
engine: inline
destinations:
  - table: {table}
    columns: {{id: {{type: long, required: true}}, name: string}}
dead_letters: {{table: {letters}, tolerance: {{max_rate: 0.9, min_records: 10}}}}
"""


def with_second_pipeline(
    orders: Any, *, table: str = ORDERS, letters: str = OTHER_LETTERS, topic: str | None = None
) -> Any:
    """The same shop with a second pipeline, `other`; both name their dead-letter table."""
    folder = orders.project.pipelines_folder
    second_file = PIPELINE.format(name="other", topic=topic or orders.topic, table=table, letters=letters)
    (folder / "other.yaml").write_text(second_file)
    return orders.with_pipeline(PIPELINE.format(name="orders", topic=orders.topic, table=ORDERS, letters=LETTERS))


def run_other(orders: Any) -> None:
    """One run of the second pipeline."""
    project: Project = orders.project
    pipeline = project.pipeline("other")
    planned = plan_run(project, pipeline, RunRequest(str(uuid.uuid4())))
    if planned.plan is not None:
        ingest(project, pipeline, planned.plan, stage_inline, lambda _: None)


def test_shared_dead_letter_table_is_refused(shop: MakeShop) -> None:
    """The second one to come is refused and lands nothing: a reset of one would take out the other's letters."""
    orders = with_second_pipeline(shop(partitions=1), table="shop.other", letters=LETTERS)
    send(orders, {0: [order(0), bad(1)]})
    orders.run()

    with pytest.raises(Terminal, match=rf"{LETTERS} belongs to pipeline orders") as refused:
        run_other(orders)

    assert "dead_letters.table" in str(refused.value)
    assert orders.rows("shop.other") == []
    assert letters(orders) == [(0, 1, 1)]
    reset(orders, "earliest")
    assert orders.run().read == 2
    assert_clean(orders)


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["same-cluster", "another-cluster"])
def test_second_pipeline_of_same_topic_name_and_table_is_refused(
    shop: MakeShop, monkeypatch: pytest.MonkeyPatch, is_elsewhere: bool
) -> None:
    """Rows don't say which cluster they came from: refused whatever the cluster, and the first one goes on."""
    orders = with_second_pipeline(shop(partitions=1))
    send(orders, {0: [order(0), bad(1)]})
    orders.run()

    def elsewhere(*args: Any, **options: Any) -> ClusterFacts:
        return replace(observe(*args, **options), cluster_id="elsewhere")

    with monkeypatch.context() as patched:
        if is_elsewhere:
            patched.setattr(context, "observe", elsewhere)
        with pytest.raises(
            Terminal, match=rf"pipeline orders landed topic {orders.topic} in table {ORDERS}"
        ) as refused:
            run_other(orders)

    assert "Call it orders again" in str(refused.value)
    assert orders.ids() == [0]
    send(orders, {0: [order(2)]})
    assert orders.run().read == 1
    assert_clean(orders)


def test_pipelines_of_different_topics_share_one_table(shop: MakeShop) -> None:
    """One destination may be filled from two topics by two pipelines; neither touches the other's rows."""
    plain = shop(partitions=1)
    topic = f"returns-{uuid.uuid4().hex[:8]}"
    create_topic(plain.cluster, topic, 1)
    orders = with_second_pipeline(plain, topic=topic)
    returns = type(orders)(orders.project, orders.cluster, topic)
    for shop_part, first in ((orders, 0), (returns, 100)):
        send(shop_part, {0: [order(first), bad(first + 1), order(first + 2)]})
    orders.run()
    run_other(orders)
    send(orders, {0: [order(3)]})
    orders.run()

    replay(orders, "earliest")
    reset(orders, "earliest")
    orders.run()
    run_other(orders)

    assert orders.ids() == [0, 2, 3, 100, 102]
    for name in ("orders", "other"):
        assert verify(orders.project, orders.project.pipeline(name)).differences == ()


def test_dead_letter_table_belongs_to_pipeline_that_created_it(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """It is the one's that made it, before either has a letter; the other gets its own by the advice."""
    orders = with_second_pipeline(shop(partitions=1), table="shop.other", letters=LETTERS)
    send(orders, {0: [order(0), bad(1)]})

    def refused() -> None:
        with pytest.raises(Terminal, match=rf"{LETTERS} belongs to pipeline orders"):
            run_other(orders)

    at_failpoint("manifest.written", refused)
    orders.run()
    own = with_second_pipeline(orders, table="shop.other", letters=OTHER_LETTERS)
    run_other(own)

    assert (letters(own), len(own.rows(OTHER_LETTERS))) == ([(0, 1, 1)], 1)
    for name in ("orders", "other"):
        assert verify(own.project, own.project.pipeline(name)).differences == ()


def with_pattern(orders: Any, topic: str, more: str = "", *, listed: str | None = None) -> Any:
    """Two pipelines over one table, each with a topic of its own; both match `topic`, but for the second one if it lists its own.

    With `more` destinations both keep their positions in their ledgers.
    """
    folder = orders.project.pipelines_folder
    for name, own, letter_table in (("orders", orders.topic, LETTERS), ("other", f"{topic}-other", OTHER_LETTERS)):
        text = PIPELINE.format(name=name, topic=own, table=ORDERS, letters=letter_table)
        if name != listed:
            text = text.replace(f"topics: [{own}]", f"topics_pattern: '{own}|{topic}'")
        if more:
            text = text.replace("dead_letters:", f"  - {{table: {more}.{name}, columns: {{id: long}}}}\ndead_letters:")
        (folder / f"{name}.yaml").write_text(text)
    return replace(orders, project=Project.load(environment(orders.project)))


def sent(orders: Any, topic: str, *ids: int) -> None:
    create_topic(orders.cluster, topic, 1)
    send(replace(orders, topic=topic), {0: [order(number) for number in ids]})


def two_with_a_new_topic(shop: MakeShop, more: str) -> tuple[Any, str]:
    """Two pipelines that have landed a record each, and a record of a topic that both match."""
    plain = shop(partitions=1)
    topic = f"new-{uuid.uuid4().hex[:8]}"
    orders = with_pattern(plain, topic, more)
    send(orders, {0: [order(0)]})
    sent(orders, f"{topic}-other", 100)
    orders.run()
    run_other(orders)
    sent(orders, topic, 7)
    return orders, topic


def assert_both_go_on(advised: Any, topic: str) -> None:
    """Each lands its own topic, and one of them the new one, once."""
    for shown, number in ((advised.topic, 1), (f"{topic}-other", 101), (topic, 8)):
        send(replace(advised, topic=shown), {0: [order(number)]})
    for _ in range(2):
        advised.run()
        run_other(advised)
    assert advised.ids() == [0, 1, 7, 8, 100, 101]
    for name in ("orders", "other"):
        assert verify(advised.project, advised.project.pipeline(name)).differences == ()


@pytest.mark.short("copy-claim.committing")
@pytest.mark.parametrize(
    ("more", "point"), [("", "manifest.written"), ("copy", "manifest.written"), ("copy", "claim.committing")]
)
def test_new_topic_that_two_pipelines_match_is_landed_once(
    shop: MakeShop, at_failpoint: AtFailpoint, more: str, point: str
) -> None:
    """A rival lands it before the second one's decision, or before its claim: that refuses it, and by the advice both go on."""
    orders, topic = two_with_a_new_topic(shop, more)

    at_failpoint(point, orders.run)
    with pytest.raises(Terminal, match=rf"pipeline orders landed topic {topic} in table {ORDERS}") as refused:
        run_other(orders)

    assert f"leave {topic} out of the source of pipeline other: list its other topics" in str(refused.value)
    assert_both_go_on(with_pattern(orders, topic, more, listed="other"), topic)


@pytest.mark.short("decide.committed")
@pytest.mark.parametrize("point", ["decide.committing", "decide.committed"])
def test_topic_of_a_batch_that_is_not_finished_is_not_landed_by_another(
    shop: MakeShop, at_failpoint: AtFailpoint, point: str
) -> None:
    """It is claimed in the shared table before the decision that nothing takes back."""
    orders, topic = two_with_a_new_topic(shop, "copy")

    def refused() -> None:
        with pytest.raises(Terminal, match=rf"leave {topic} out of the source of pipeline orders"):
            orders.run()

    at_failpoint(point, refused)
    run_other(orders)
    assert_both_go_on(with_pattern(orders, topic, "copy", listed="orders"), topic)


@pytest.mark.parametrize("is_there", [True, False], ids=["empty-table", "no-table"])
def test_edited_dead_letter_table_is_refused(shop: MakeShop, is_there: bool) -> None:
    """dead_letters.table edited after letters were landed is refused by the old name; edited back, it goes on."""
    orders = shop(partitions=1)
    send(orders, {0: [order(0), bad(1)]})
    orders.run()
    text = (orders.project.pipelines_folder / "orders.yaml").read_text()
    if is_there:
        lake(orders).create_table(OTHER_LETTERS, DEAD_LETTER_SCHEMA, UNPARTITIONED, {})
    moved = orders.with_pipeline(text.replace("dead_letters: {", f"dead_letters: {{table: {OTHER_LETTERS}, "))
    send(moved, {0: [bad(2), order(3)]})

    with pytest.raises(Terminal, match=rf"kept in table {LETTERS}" if is_there else OTHER_LETTERS):
        moved.run()
    with pytest.raises(Terminal, match=rf"kept in table {LETTERS}") as refused:
        repair(moved, OTHER_LETTERS)

    assert f"set dead_letters.table to {LETTERS} again" in str(refused.value)
    back = moved.with_pipeline(text)
    assert back.run().read == 2
    assert letters(back) == [(0, 1, 1), (0, 2, 2)]
    assert_clean(back)


def test_second_of_two_pipelines_that_begin_at_once_is_refused(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """The one whose first commit comes second is refused by it; the other goes on."""
    orders = with_second_pipeline(shop(partitions=1))
    send(orders, {0: [order(0), bad(1)]})
    at_failpoint("manifest.written", orders.run)

    with pytest.raises(Terminal, match="landed topic"):
        run_other(orders)

    send(orders, {0: [order(2)]})
    orders.run()
    assert orders.ids() == [0, 2]


def test_claim_of_a_batch_that_never_was_is_removed_by_the_step_of_its_refusal(shop: MakeShop) -> None:
    """A run was killed between its claim and its decision, and the file that listed the table was edited back."""
    orders = shop(partitions=1)
    send(orders, {0: [order(0)]})
    orders.run()
    claim = TOPICS_KEY.format("other")
    table = orders.project.lake("lake").load_table(ORDERS)
    text = mirror(json.dumps([orders.topic]), table.metadata.current_snapshot_id)
    table.transaction().set_properties({claim: text}).commit_transaction()
    send(orders, {0: [order(1)]})

    with pytest.raises(Terminal) as refused:
        orders.run()

    assert f"ALTER TABLE {ORDERS} UNSET TBLPROPERTIES ('{claim}')" in str(refused.value)
    table.refresh().transaction().remove_properties(claim).commit_transaction()
    assert orders.run().read == 1
    assert_clean(orders)


def rename(orders: Any, name: str, old_name: str = "orders") -> Any:
    """The same shop, its pipeline file with another name in it."""
    file = orders.project.pipelines_folder / f"{old_name}.yaml"
    text = file.read_text()
    file.unlink()
    (file.parent / f"{name}.yaml").write_text(text.replace(f"name: {old_name}", f"name: {name}", 1))
    return replace(orders, project=Project.load(environment(orders.project)))


def test_renamed_pipeline_reads_nothing_again(shop: MakeShop) -> None:
    """The position belongs to the name: under another one nothing is landed or begun, and under the old one it goes on."""
    orders = shop(partitions=1)
    send(orders, {0: [order(0), bad(1)]})
    orders.run()
    renamed = rename(orders, "other")
    send(orders, {0: [order(2)]})

    for _ in range(2):
        with pytest.raises(Terminal, match=rf"pipeline orders landed topic {orders.topic}") as refused:
            run_other(renamed)

    assert "was it renamed? Call it orders again" in str(refused.value)
    assert orders.ids() == [0]
    back = rename(renamed, "orders", old_name="other")
    assert back.run().read == 1
    assert back.ids() == [0, 2]
    assert_clean(back)


def test_removed_pipeline_resumes_when_its_file_is_back(shop: MakeShop) -> None:
    """Its tables keep the position: a file of the same name reads what came meanwhile, and nothing twice."""
    orders = shop(partitions=1)
    send(orders, {0: [order(0), bad(1)]})
    orders.run()
    file = orders.project.pipelines_folder / "orders.yaml"
    text = file.read_text()
    file.unlink()
    send(orders, {0: [order(2)]})

    back = orders.with_pipeline(text)

    assert back.run().read == 1
    assert back.ids() == [0, 2]
    assert_clean(back)


SHARED = "shop.both"

Files = dict[str, tuple[str, bool]]


def with_listed(orders: Any, files: Files) -> Any:
    """Pipelines by name: the topics of each, and whether it lists the shared table beside one of its own."""
    for name, (read, is_listed) in files.items():
        text = PIPELINE.format(name=name, topic=read, table=f"shop.own_{name}", letters=f"shop.{name}_letters")
        if is_listed:
            text = text.replace("dead_letters:", f"  - {{table: {SHARED}, columns: {{id: long}}}}\ndead_letters:")
        (orders.project.pipelines_folder / f"{name}.yaml").write_text(text)
    return replace(orders, project=Project.load(environment(orders.project)))


def assert_one_lands(orders: Any, at_failpoint: AtFailpoint, point: str, after: Files, files_before: Files) -> None:
    """Of two pipelines that run at once, one is refused before it lands the topic, and goes on with its file from before."""
    refused: dict[str, str] = {}

    def run(name: str, deed: Callable[[], object]) -> None:
        try:
            deed()
        except Terminal as refusal:
            refused[name] = str(refusal)

    at_failpoint(point, lambda: run("other", lambda: run_other(orders)))
    run("orders", orders.run)
    ((loser, message),) = refused.items()
    assert f"landed topic {orders.topic} in table {SHARED}" in message
    send(orders, {0: [order(8)]})
    orders = with_listed(orders, after | {loser: files_before[loser]})
    for _ in range(2):
        orders.run()
        run_other(orders)
    assert sorted(row["id"] for row in orders.rows(SHARED) if row["id"] < 100) == [7, 8]
    for name in ("orders", "other"):
        assert verify(orders.project, orders.project.pipeline(name)).differences == ()


@pytest.mark.short("table-decide.committed")
@pytest.mark.parametrize("point", ["manifest.written", "claim.committing", "decide.committing", "decide.committed"])
@pytest.mark.parametrize("new", ["table", "topic"])
def test_table_that_a_pipeline_lists_newly_gets_a_topic_of_one(
    shop: MakeShop, at_failpoint: AtFailpoint, new: str, point: str
) -> None:
    """Another one lists it, or brings the topic to it, at the same moment: the first one claims it before its decision."""
    plain = shop(partitions=1)
    topic = f"older-{uuid.uuid4().hex[:8]}"
    sent(plain, topic, 100)
    before = {"orders": (topic, new == "topic"), "other": (plain.topic, False)}
    orders = with_listed(plain, before)
    orders.run()
    run_other(orders)
    topics = f"{topic}, {plain.topic}"
    after = {"orders": (topics, True), "other": (plain.topic, True)}
    orders = with_listed(orders, after)
    send(orders, {0: [order(7)]})
    assert_one_lands(orders, at_failpoint, point, after, before)


def test_pipeline_begins_while_another_lists_its_table(shop: MakeShop, at_failpoint: AtFailpoint) -> None:
    """The table that closes the one's batches is claimed by the other before its decision: the one lands nothing there."""
    plain = shop(partitions=1)
    orders = with_listed(plain, {"orders": (plain.topic, False)})
    send(orders, {0: [order(0)]})
    orders.run()
    orders = with_listed(orders, {"orders": (plain.topic, True)})
    text = PIPELINE.format(name="other", topic=plain.topic, table=SHARED, letters=OTHER_LETTERS)
    (orders.project.pipelines_folder / "other.yaml").write_text(text)
    orders = replace(orders, project=Project.load(environment(orders.project)))
    send(orders, {0: [order(7)]})

    def refused() -> None:
        with pytest.raises(Terminal, match=rf"pipeline orders landed topic {orders.topic} in table {SHARED}"):
            run_other(orders)

    at_failpoint("decide.committed", refused)
    orders.run()
    assert [row["id"] for row in orders.rows(SHARED)] == [7]
    assert verify(orders.project, orders.pipeline).differences == ()
