"""Tiers of tests: a test belongs to the folder it lies in. Quick tiers run first, in random order within each."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

TIERS = ("unit", "dags", "e2e", "spark", "integration", "chaos")
"""Folders under tests/, in the order in which they run: the quick ones first, in processes that have met nothing yet; then those
that one process must run alone, the longest at the front; then what the processes share to the end, the tests of one server first. Each is a marker too."""

ONE_PROCESS = ("e2e", "spark")
"""Tiers whose tests share something big, the whole stack or a Spark session: one worker process runs all of a tier."""

OWN_STACK = ("test_postgres.py", "test_quickstart.py")
"""Files of e2e that bring a stack of their own: another process runs them beside the stack that the others share."""

SERVERS = {
    "integration/catalogs": "metastore",
    "integration/stores": "s3",
    "integration/cli/test_spark_connect.py": "spark connect",
    "integration/registry": "registry",
    "integration/formats": "registry",
    "integration/security": "broker with logins",
}
"""Folders and files whose tests share a server that takes long to build or to start: one worker process runs all of
a server's, so that it is started once."""

MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, and pytest makes a private folder in it
MEMORY_BYTES = 3 * 2**30
"""Bounds what the files of a whole run take, of all workers: less than one GiB."""

TESTS = Path(__file__).parent / "tests"

# How long an example takes depends on what else runs on the machine: no property is about that.
settings.register_profile("frazil", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("frazil")


def tier_of(path: Path) -> str:
    """Folder under tests/ that a test file lies in.

    Raises:
        pytest.UsageError: It is no tier.
    """
    tier = path.relative_to(TESTS).parts[0]
    if tier not in TIERS:
        raise pytest.UsageError(f"{path}: tests lie in tests/{{{','.join(TIERS)}}}/")
    return tier


def server_of(path: str) -> str | None:
    """The server of `SERVERS` that the tests of a file share, by its path below tests/."""
    return next((server for place, server in SERVERS.items() if path.startswith(place)), None)


def is_in_short_lane(item: Any) -> bool:
    """Whether `make test` runs a test: it is not marked `full`, and its parameters are among those that `short` names."""
    if item.get_closest_marker("full") is not None:
        return False
    short = item.get_closest_marker("short")
    return short is None or item.callspec.id in short.args


def check_short_ids(items: Sequence[Any]) -> None:
    """Look whether each id that a mark `short` names is the id of a parameter.

    Raises:
        pytest.UsageError: It is not, so that no lane short of `--full` would run the proof.
    """
    ids: dict[tuple[str, tuple[str, ...]], set[str]] = {}
    for item in items:
        if short := item.get_closest_marker("short"):
            ids.setdefault((item.nodeid.partition("[")[0], short.args), set()).add(item.callspec.id)
    for (test, named), present in ids.items():
        if len(present) > 1 and not present >= {*named}:  # a single one was asked for by its id
            raise pytest.UsageError(
                f"{test}: no parameter has the id {', '.join({*named} - present)}; ids: {sorted(present)}"
            )


def is_on_production(item: pytest.Item) -> bool:
    """Whether a test can have its topics and tables in the production profile: it has a shop or a lab, and brings no catalog,
    registry or Spark of its own, and nothing says that it looks into the embedded ones (mark `embedded`).
    """
    fixtures = set(getattr(item, "fixturenames", ()))
    own = {"rest_server", "rest_settings", "registry", "warm_spark", "spread", "s3", "store"}
    return "home_at" in fixtures and not fixtures & own and item.get_closest_marker("embedded") is None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests marked `full` too: minutes instead of seconds")
    parser.addoption(
        "--profile",
        choices=["embedded", "production"],
        default="embedded",
        help="where labs and shops of the integration and chaos tests have topics and tables; one process, tests/production.py",
    )


def files_in_memory() -> None:
    """Put the tests' folders into memory where there is room: catalogs in SQLite, Airflow's too, sync each commit to the disk."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_configure() -> None:
    files_in_memory()
    # Each JVM of a test lives for seconds: its second compiler takes longer than it saves. The broker is started so anyway.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    # Ended from outside (a CI's time limit), the tests still stop the brokers and the Airflow they started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Py4J says good-bye while the interpreter ends, to streams that pytest has closed by then.
    logging.getLogger("py4j").setLevel(logging.WARNING)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    # Not the marks of --dist=loadgroup: xdist 3.8 notes them in a test's id, where pytest 9.2 does not look.
    config.option.loadscopereorder = False  # the order of the tiers stays
    return TierScheduling(config, log)


class TierScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Each test goes to whoever is free, and a whole tier to one process where it shares something big."""

    def _split_scope(self, nodeid: str) -> str:
        _, tier, *rest = nodeid.partition("::")[0].split("/")
        if tier not in ONE_PROCESS:
            return server_of("/".join([tier, *rest])) or nodeid
        return rest[-1] if rest[-1] in OWN_STACK else tier


@pytest.hookimpl(trylast=True)  # after the plugin that shuffles: the sort is stable, so each tier stays shuffled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        check_short_ids(items)
        _keep(config, items, is_in_short_lane)
    if config.getoption("--profile") == "production":
        _keep(config, items, is_on_production)
    for item in items:
        tier = tier_of(item.path)
        item.add_marker(tier)
        if tier == "unit":
            item.add_marker("disable_socket")
    items.sort(key=_order)


def _order(item: pytest.Item) -> tuple[int, bool, bool]:
    shares_server = server_of(item.path.relative_to(TESTS).as_posix()) is not None
    return TIERS.index(tier_of(item.path)), item.path.name in OWN_STACK, not shares_server


def _keep(config: pytest.Config, items: list[pytest.Item], fits: Callable[[pytest.Item], bool]) -> None:
    """Deselect the items that do not fit."""
    config.hook.pytest_deselected(items=[item for item in items if not fits(item)])
    items[:] = filter(fits, items)
