"""The production profile in a folder of its own, for tests; and homes of tests beside it, whose tables and topics it holds."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import SystemRandom

from frazil.devstack import postgres, stack
from frazil.devstack.object_store import require_program
from frazil.devstack.production import USER, kafka_access
from frazil.devstack.stack import PartName, names
from frazil.errors import Terminal
from frazil.kafka.client.cluster import Cluster
from frazil.project import Project
from frazil.runtime.home import Home, Ports, is_free
from tests.servers import with_password

BELOW_EPHEMERAL = range(20_000, 32_000)

WITHOUT_AIRFLOW: tuple[PartName, ...] = tuple(name for name in names("production") if name != "airflow")
STORES: tuple[PartName, ...] = ("postgres", "s3", "catalog", "kafka")
"""What a run by the in-process engine needs."""


def lacking(jars: Path) -> str | None:
    """What this machine lacks for the profile; None: nothing."""
    if postgres.programs() is None:
        return "no PostgreSQL: neither on PATH nor below /usr/lib/postgresql (apt-get install postgresql)"
    try:
        require_program(replace(Home.resolve(), jars=jars))
    except Terminal as missing:
        return str(missing)
    return None


@contextmanager
def production_home() -> Iterator[Home]:
    """An empty home in the production profile on free ports; what was started there is stopped in the end.

    Not below pytest's folders: those of root are closed to others, and root's PostgreSQL runs as somebody else.
    """
    root = Path(tempfile.mkdtemp(prefix="frazil-production-"))
    root.chmod(0o755)
    tried = filter(is_free, SystemRandom().sample(BELOW_EPHEMERAL, 200))
    ports = Ports(*islice(tried, len(Ports.__dataclass_fields__)))
    home = replace(Home.resolve(), root=root, profile="production", ports=ports)
    try:
        yield home
    finally:
        stack.down(home)
        shutil.rmtree(root)


@contextmanager
def production_stack(parts: Collection[PartName]) -> Iterator[Home]:
    """Some of the profile's parts, up."""
    with production_home() as home:
        stack.up(home, parts, print)
        yield home


def cluster_of(home: Home) -> Cluster:
    """The broker as the profile's settings have it: TLS and a password."""
    return Cluster("local", with_password(kafka_access(home), USER))


def in_production(home: Home, root: Path) -> None:
    """Make a home of its own state and logs that has its topics and tables in the stack of another."""
    root.mkdir(parents=True, exist_ok=True)
    replace(home, root=root).record()
    (root / "production").symlink_to(home.production)


def empty(home: Home) -> None:
    """Forget every table of the catalog."""
    lake = Project.load({"FRAZIL_HOME": str(home.root)}).lake("lake")
    for table in lake.tables():
        lake._catalog.drop_table(table)
    lake.close()
