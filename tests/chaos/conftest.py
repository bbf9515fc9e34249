"""Labs of the chaos tests: a topic, a home and a catalog of their own, and children that can be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frazil.kafka.client.cluster import Cluster
from tests.chaos.lab import Catalog, Lab, new_lab
from tests.chaos.processes import Nursery, nursery

MakeLab = Callable[..., Lab]


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Nursery]:
    """Starts processes, and ends what is left of them."""
    with nursery(tmp_path / "children") as children:
        yield children


@pytest.fixture
def lab(
    tmp_path: Path,
    cluster: Cluster,
    children: Nursery,
    home_at: Callable[[Path], Path],
    request: pytest.FixtureRequest,
) -> MakeLab:
    """Make a lab: `lab(catalog="rest", partitions=2, topic_config={...}, max_records=20)`; further options are the
    pipeline's. The catalog is SQLite (`jdbc`) unless asked otherwise; the REST server starts only if somebody asks.
    """

    def make(catalog: Catalog = "jdbc", **options: Any) -> Lab:
        home_at(tmp_path / "home")
        settings = request.getfixturevalue("rest_settings")() if catalog == "rest" else None
        return new_lab(tmp_path, cluster, children, settings=settings, **options)

    return make
