"""Logins of a REST catalog, and keys of the store that it lends for less time than a batch takes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from frazil.batch.facts import Staged
from frazil.batch.position import RunRequest
from frazil.doctor.services import storage
from frazil.errors import Retryable, Terminal
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.project import SETTINGS_VARIABLE, Project, catalog_of
from frazil.run.batches.plan import plan_run
from frazil.run.staging.stage import StageOrder, stage_inline
from frazil.runtime.home import Home
from frazil.spark.submit.submission import run_spark
from tests.conftest import FreePorts
from tests.integration.conftest import environment
from tests.operations import ORDERS, assert_clean, lake, order, places, send
from tests.seaweedfs import PORTS, SeaweedFS, program, seaweedfs
from tests.spark.test_merge_repaired import BATCHES, FILE

pytestmark = pytest.mark.full

LENT_SECONDS = 20


def shop_on(server: SeaweedFS, login: str, shop: Callable[..., Any], folder: Path) -> Any:
    """A shop whose tables are in an empty catalog of the server."""
    entry = server.entry(login)
    catalog = catalog_of("lake", CatalogSettings(**entry))
    for table in catalog.tables():
        catalog._catalog.drop_table(table)
    new_shop, settings = shop(partitions=1), folder / "settings.yaml"
    clusters = {"local": {"bootstrap_servers": "${local:kafka}"}}
    settings.write_text(json.dumps({"clusters": clusters, "catalogs": {"lake": entry}}))
    return replace(new_shop, project=Project.load(environment(new_shop.project) | {SETTINGS_VARIABLE: str(settings)}))


def test_keys_and_tokens_that_end_during_a_batch_cost_no_record(
    managed_catalog: SeaweedFS, shop: Callable[..., Any], tmp_path: Path, free_ports: FreePorts
) -> None:
    """Staged for longer than keys are lent: the manifest is written with new ones. Begun later than that: refused, and tried again."""
    assert managed_catalog  # built
    (tmp_path / "short").mkdir()
    built, ports = program(Home.resolve()), free_ports(2 * len(PORTS) + 1)
    assert built is not None

    def stage_slowly(staging: StageOrder) -> Staged:
        staged = stage_inline(staging)
        time.sleep(LENT_SECONDS + 1)
        return staged

    def stage_late(staging: StageOrder) -> Staged:
        time.sleep(LENT_SECONDS + 1)
        return stage_inline(staging)

    with seaweedfs(built, tmp_path / "short", ports, lifetime=f"{LENT_SECONDS}s", token_seconds=2) as server:
        orders = shop_on(server, "oauth2", shop, tmp_path)
        send(orders, {0: [order(0), order(1)]})
        orders.run(stage=stage_slowly)
        assert "the catalog lends its keys for 0 minutes" in storage(lake(orders), [ORDERS]).observed
        send(orders, {0: [order(2)]})
        with pytest.raises(Retryable, match="the storage's temporary credentials expired"):
            orders.run(stage=stage_late)
        orders.run()

        assert [offset for _, offset in places(orders)] == [0, 1, 2]
        assert_clean(orders)


@pytest.mark.parametrize("login", ["oauth2", "sigv4"])
def test_wrong_secret_is_refused(managed_catalog: SeaweedFS, login: str) -> None:
    """At once and for good, without the secret in the message."""
    entry = managed_catalog.entry(login)
    entry["properties"] |= (
        {"credential": "frazil-tests:other"} if login == "oauth2" else {"client.secret-access-key": "other"}
    )

    with pytest.raises(Terminal, match="the catalog refused") as refusal:
        catalog_of("lake", CatalogSettings(**entry)).tables()

    assert "other" not in str(refusal.value)


@pytest.mark.parametrize("login", ["oauth2", "sigv4"])
def test_spark_logs_in_by_the_same_entry(
    login: str, managed_catalog: SeaweedFS, shop: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark merges what PyIceberg decided: with keys that the catalog lends, and by requests that both sign."""
    orders = shop_on(managed_catalog, login, shop, tmp_path)
    orders = orders.with_pipeline(FILE.format(topic=orders.topic))
    monkeypatch.setenv("FRAZIL_KAFKA_PORT", str(orders.project.home.ports.kafka))  # the job's, too
    for values in BATCHES[:2]:
        send(orders, {0: values})
        planned = plan_run(orders.project, orders.pipeline, RunRequest(str(uuid4())))
        run_spark(orders.project, orders.pipeline, planned.plan, print)

    assert sorted((row["id"], row["name"]) for row in orders.rows()) == [
        (0, "a"), (1, "b"), (4, "a"), (5, "a"), (30, "moved"),
    ]  # fmt: skip
    assert_clean(orders)
