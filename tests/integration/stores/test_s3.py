"""Batches in S3, whose answers are slow, lost or refusals: everything lands exactly once, and nothing is deleted that may be needed."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from frazil.error_codes import INTERNAL
from frazil.errors import OutcomeUnknown, Retryable, Terminal
from frazil.iceberg.patches import files
from frazil.spark.submit.handover import Handover, Outcome, storage_of
from tests.fault_proxy import Step, answered, hung, lost, refused, slowed_down
from tests.integration.stores.conftest import S3Shop
from tests.operations import assert_clean, bad, letters, order, places, position, replay, send, state

pytestmark = pytest.mark.tried("S3: Versity's gateway", "real")

MakeShop = Callable[..., S3Shop]

PLACES = {
    "data file": ("PUT", r"/shop/orders/data/.*\.parquet"),
    "data file of letters": ("PUT", r"/orders__dead_letters/data/.*\.parquet"),
    "length of a data file": ("HEAD", r"/shop/orders/data/.*\.parquet"),
    "manifest of the batch": ("PUT", r"/metadata/frazil-orders-.*\.json"),
    "manifest": ("PUT", r"/shop/orders/metadata/.*-m0\.avro"),
    "list of manifests": ("PUT", r"/shop/orders/metadata/snap-.*\.avro"),
    "list of manifests, read": ("GET", r"/shop/orders/metadata/snap-.*\.avro"),
    "metadata": ("PUT", r"/shop/orders/metadata/.*\.metadata\.json"),
    "metadata of letters": ("PUT", r"/orders__dead_letters/metadata/.*\.metadata\.json"),
    "row of the ledger": ("PUT", r"/orders__ledger/data/.*\.parquet"),
    "metadata of the ledger": ("PUT", r"/orders__ledger/metadata/.*\.metadata\.json"),
}
"""Requests of a batch."""

FAULTS: dict[str, Step] = {
    "SlowDown": answered(slowed_down()),
    "500": refused(500),
    "reset": refused(None),
    "landed, answer lost": lost(None),
    "landed, 500": lost(500),
}

ONE = "landed, answer lost"
"""The fault of the normal run: it may do the most harm."""

faults = pytest.mark.parametrize(
    "fault", [pytest.param(name, marks=pytest.mark.full) if name != ONE else name for name in FAULTS]
)


def batch_of(shop: S3Shop, n: int) -> None:
    """Send four records: two good, two bad."""
    send(shop.shop, {0: [order(4 * n), bad(4 * n + 1), order(4 * n + 2), bad(4 * n + 3)]})


def assert_all(shop: S3Shop, batches: int) -> None:
    """Every record of so many batches has its one outcome, no object was deleted, and another run changes nothing."""
    orders = shop.shop
    assert shop.proxy.unused == 0
    assert [offset for _, offset in places(orders)] == list(range(0, 4 * batches, 2))
    assert [offset for _, offset, _ in letters(orders)] == list(range(1, 4 * batches, 2))
    assert_clean(orders)
    before = state(orders)
    assert (orders.run().read, state(orders)) == (0, before)
    assert [path for method, path in shop.proxy.seen if method == "DELETE"] == []


@faults
def test_occasional_s3_failures_do_not_fail_batch(s3_shop: MakeShop, fault: str) -> None:
    """Whatever request of a batch is struck, it is sent again and the batch lands."""
    shop = s3_shop(partitions=1)
    shop.shop.run()
    for n, (method, path) in enumerate(PLACES.values()):
        batch_of(shop, n)
        shop.proxy.script(method, path, FAULTS[fault])

        result = shop.shop.run()

        assert (result.written, shop.proxy.unused) == (2, 0)
    assert_all(shop, len(PLACES))


@faults
def test_unavailable_s3_neither_loses_nor_doubles_records(
    s3_shop: MakeShop, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Given up, the run rides it out or says that another may come, and that one lands what is missing, once."""
    monkeypatch.setattr(files, "S3_ATTEMPTS", 1)  # of six the last comes half a minute later
    shop = s3_shop(partitions=1)
    shop.shop.run()
    ended = []
    for n, (method, path) in enumerate(PLACES.values()):
        batch_of(shop, n)
        shop.proxy.script(method, path, FAULTS[fault])
        ended.append(runs(shop))
        assert shop.proxy.unused == 0
        assert ended[-1] or runs(shop)
    assert not all(ended)
    assert_all(shop, len(PLACES))


@pytest.mark.full
def test_slow_s3_does_not_hang_run(s3_shop: MakeShop) -> None:
    """Requests that nobody answers end at the time limit, and are sent again."""
    shop = s3_shop(partitions=1, properties={"s3.request-timeout": "1"})
    shop.shop.run()
    over = Event()
    batch_of(shop, 0)
    for carried_out, (method, path) in enumerate([PLACES["data file"], PLACES["metadata"]]):
        shop.proxy.script(method, path, hung(over, carried_out=bool(carried_out)))
    try:
        shop.shop.run()
    finally:
        over.set()
    assert_all(shop, 1)


def test_replay_in_s3_deletes_no_object(s3_shop: MakeShop) -> None:
    """A replay whose uploads and reads are struck replaces its range once, and deletes no object."""
    shop = s3_shop(partitions=1)
    for n in range(2):
        batch_of(shop, n)
        shop.shop.run()
    for method, path in (PLACES["metadata"], PLACES["list of manifests, read"], PLACES["metadata of letters"]):
        shop.proxy.script(method, path, FAULTS[ONE])

    replay(shop.shop, "earliest")

    assert {row["_frazil_batch"] for row in shop.shop.rows()} == {position(shop.shop).n}
    assert_all(shop, 2)


def test_wrong_s3_key_is_not_retried(s3_shop: MakeShop) -> None:
    """A key that does not fit stops a pipeline, and the error does not tell it."""
    shop = s3_shop(partitions=1, properties={"s3.secret-access-key": "hunter2"})

    with pytest.raises(Terminal, match="the storage refused") as stopped:
        shop.shop.run()

    assert "hunter2" not in str(stopped.value)


def test_order_and_outcome_in_a_bucket_survive_lost_answers(s3_shop: MakeShop) -> None:
    """A store without rename: objects are there as a whole, beside the ledger's, and hold no key of the store."""
    shop = s3_shop(partitions=1)
    batch_of(shop, 0)
    shop.shop.run()
    project, pipeline = shop.shop.project, shop.shop.pipeline
    handover = Handover.begin(project, storage_of(project, pipeline), "orders", "a run")
    shop.proxy.script("PUT", r"/orders__ledger/metadata/frazil-orders-job-.*\.json", FAULTS[ONE], FAULTS[ONE])

    handover.hand_over("{}", outlives=True)
    driver = Handover.from_arguments(project, "ingest", handover.arguments)
    assert driver.read_order() == ("{}", True)
    driver.write_outcome(Outcome(result="1,000 rows"))
    (key,) = (key for key in shop.objects() if handover.attempt in key)
    text = shop.server.files().open_input_stream(key).read().decode()

    assert shop.proxy.unused == 0
    assert shop.server.properties(shop.server.port)["s3.secret-access-key"] not in text
    assert handover.take_result(INTERNAL.retryable("lost")) == "1,000 rows"
    assert not [key for key in shop.objects() if "-job-" in key]


def runs(shop: S3Shop) -> bool:
    """Whether a run comes to its end; one that doesn't says that another may."""
    try:
        shop.shop.run()
    except (Retryable, OutcomeUnknown):
        return False
    return True
