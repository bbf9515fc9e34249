"""Labs of the chaos tests: a topic, a home and a catalog of their own, and children that can be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from frazil.kafka.cluster import Cluster
from tests.chaos.lab import Lab, new_lab
from tests.chaos.processes import Nursery, nursery

MakeLab = Callable[..., Lab]


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Nursery]:
    """Starts processes, and ends what is left of them."""
    with nursery(tmp_path / "children") as made:
        yield made


@pytest.fixture
def lab(tmp_path: Path, cluster: Cluster, children: Nursery) -> MakeLab:
    """Make a lab: `lab(partitions=2, topic_config={...}, max_records=20)`; further options are the pipeline's."""
    return partial(new_lab, tmp_path, cluster, children)
