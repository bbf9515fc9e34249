"""Of `frazil run`: when a driver is forked for its job."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from frazil.cli.operate.warm_driver import warm_driver
from frazil.runtime import spark_server
from frazil.runtime.home import project_root
from frazil.spark.submit import job_process


@pytest.mark.parametrize(
    ("managed", "is_started", "is_forked"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_driver_waits_only_for_a_server(
    monkeypatch: pytest.MonkeyPatch, *, managed: bool, is_started: bool, is_forked: bool
) -> None:
    """Without its own server a run starts a Spark, and a driver would keep its memory until that has ended."""
    monkeypatch.setattr("threading.active_count", lambda: 1)  # those of earlier tests hold no lock that is wanted here
    monkeypatch.setattr(spark_server, "is_started", lambda _: is_started)
    engine = SimpleNamespace(type="connect", managed=managed)
    project = SimpleNamespace(home=None, root=project_root(), settings=SimpleNamespace(engines={"spark": engine}))
    with warm_driver(cast("Any", project), cast("Any", SimpleNamespace(engine="spark", catalogs=()))):
        assert bool(job_process._waiting) == is_forked
