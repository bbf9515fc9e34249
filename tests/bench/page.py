"""How long the page takes: 200 pipelines, one of them with a ledger of 100,000 rows and thousands of dead letters.

    python -m tests.bench.page [--pipelines N] [--ledger-rows N] [--letters N] [--rounds N] [--folder FOLDER]

Every pipeline landed its records from a real broker into real tables of a SQLite catalog, and Airflow's metadata has its
DAGs with 200 runs each. Each view is opened through the page's application, as Airflow's own admin. Cold is the first request of a
process that never read anything but its files; warm are the later ones, while the conditions are read beside them. CPU is of the
whole process, with nothing read beside. Prints a table for docs/benchmarks.md.
What was landed in a folder is kept for the next time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from frazil.batch.changes import LetterChoice
from frazil.project import Project
from tests.bench.landed_pipelines import BIG, Sizes, landed

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

    from frazil_airflow.page.project_source import ProjectSource

RUNS = 200
"""Runs per DAG in Airflow's metadata."""

BASE = f"/pipelines/{BIG}"


@dataclass(frozen=True)
class Times:
    """What one view took, in milliseconds."""

    path: str
    cold: float
    warm: float
    worst: float
    cpu: float
    size: int


def views(source: ProjectSource, sizes: Sizes) -> dict[str, str]:
    """Every view by its name. The addresses of a letter and of an older page are those that links hold."""
    listing = source.letters(BIG, LetterChoice(), "open", None, 50)
    if listing is None:
        raise LookupError("there are no dead letters")
    last = listing.letters[-1]
    batches = sizes.ledger_rows // 2
    tail = urlencode({"after": f'[{last.batch}, "{last.topic}", {last.partition}, {last.offset}, null]'})
    return {
        "overview": "/",
        "overview, page 4": "/?page=4",
        "overview, found": "/?q=p01&sort=lag",
        "pipeline": BASE,
        "small pipeline": "/pipelines/p000",
        "batches, first": f"{BASE}/batches",
        "batches, middle": f"{BASE}/batches?start={batches // 2}",
        "batches, last": f"{BASE}/batches?start={batches - 20}",
        "dead letters": f"{BASE}/dead-letters",
        "dead letters, older": f"{BASE}/dead-letters?{tail}",
        "dead letters, code": f"{BASE}/dead-letters?code=WRONG_TYPE",
        "dead letters, code and time": f"{BASE}/dead-letters?code=MISSING_REQUIRED&since=7d&state=all",
        "dead letter": f"{BASE}/dead-letters/{last.topic}/{last.partition}/{last.offset}",
        "snapshots": f"{BASE}/snapshots",
        "snapshots of the ledger": f"{BASE}/snapshots?table=shop.{BIG}__ledger",
        "schema": f"{BASE}/schema",
    }


def airflow_at(home: Path) -> None:
    """Airflow's metadata with the DAGs of all pipelines and their runs. To be called before anything imports Airflow."""
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    }
    from airflow.api_fastapi.app import create_auth_manager
    from airflow.utils import db

    db.initdb()
    create_auth_manager()


def fill_metadata(pipelines: list[str]) -> None:
    """A DAG of each kind per pipeline, and runs of those that ingest, a minute apart; some failed."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunType

    now = datetime.now(UTC)
    with create_session() as session:
        session.add(DagBundleModel(name="bench"))
        session.flush()
        for name in pipelines:
            for kind in ("ingest", "maintain", "dead_letters"):
                session.add(DagModel(dag_id=f"{kind}__{name}", bundle_name="bench", is_paused=False, fileloc="x"))
        session.flush()
        for name in pipelines:
            for number in range(RUNS):
                instant = now - timedelta(minutes=RUNS - number)
                run = DagRun(
                    dag_id=f"ingest__{name}", run_id=f"r{number}", run_type=DagRunType.SCHEDULED, run_after=instant
                )
                run.start_date = run.end_date = instant
                run.state = "failed" if number % 10 == 3 else "success"
                session.add(run)


@contextmanager
def opened(source: ProjectSource) -> Iterator[TestClient]:
    """The page, to somebody who may do everything; nothing kept of what Airflow was asked."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    from frazil_airflow.page import request
    from frazil_airflow.page.app import create_app
    from frazil_airflow.page.request import RecentRuns

    request.RUNS = RecentRuns()
    app = create_app()
    admin = SimpleAuthManagerUser(username="admin", role="admin")
    app.dependency_overrides |= {request.shared_source: lambda: source, get_user: lambda: admin}
    with TestClient(app) as client:
        yield client


def timed(ask: Callable[[str], object], path: str, clock: Callable[[], float]) -> float:
    """Milliseconds of one request."""
    began = clock()
    ask(path)
    return 1_000 * (clock() - began)


def measured(env: dict[str, str], sizes: Sizes, rounds: int) -> tuple[list[Times], float]:
    """Every view, cold and warm, and the seconds that the first round over all conditions took."""
    from frazil_airflow.page.project_source import ProjectSource

    paths = views(ProjectSource(env), sizes)
    with opened(ProjectSource(env)) as client:
        client.get("/")  # imports and templates: not what is measured

    def ask(path: str) -> int:
        answer = client.get(path)
        answer.raise_for_status()
        return len(answer.content)

    cold = {}
    for name, path in paths.items():
        with opened(ProjectSource(env)) as client:
            cold[name] = timed(ask, path, time.perf_counter)
    source = ProjectSource(env)
    with opened(source) as client:
        began = time.perf_counter()
        with source.watch as watch:
            watch.reading(BIG)
            if not watch.wait(1_800):
                raise TimeoutError("the conditions are not read within half an hour")
            first = time.perf_counter() - began
            warm = {view: [timed(ask, path, time.perf_counter) for _ in range(rounds)] for view, path in paths.items()}
        if watch._thread is not None:
            watch._thread.join()
        cpu = {view: [timed(ask, path, time.process_time) for _ in range(rounds)] for view, path in paths.items()}
        sizes_of = {view: ask(path) for view, path in paths.items()}
    return [
        Times(
            view,
            cold[view],
            statistics.median(warm[view]),
            max(warm[view]),
            statistics.median(cpu[view]),
            sizes_of[view],
        )
        for view in paths
    ], first


def main() -> None:
    """Land, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pipelines", type=int, default=200)
    parser.add_argument("--ledger-rows", type=int, default=100_000)
    parser.add_argument("--letters", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    sizes = Sizes(args.pipelines, args.ledger_rows, args.letters)
    with tempfile.TemporaryDirectory() as folder:
        airflow_at(Path(folder))
        with landed(args.folder or Path(folder), sizes) as env:
            began = time.perf_counter()
            names = sorted(Project.load(env).pipelines.usable)
            print(f"{len(names)} pipeline files are read in {time.perf_counter() - began:.2f} s")  # noqa: T201
            fill_metadata(names)
            found, first = measured(env, sizes, args.rounds)
    print(f"all conditions are read in {first:.1f} s, tables' health included\n")  # noqa: T201
    print("| view | cold, ms | warm, ms | worst, ms | CPU, ms | KiB |\n|---|---|---|---|---|---|")  # noqa: T201
    for view in found:
        figures = f"{view.cold:.0f} | {view.warm:.0f} | {view.worst:.0f} | {view.cpu:.0f} | {view.size / 1024:.0f}"
        print(f"| {view.path} | {figures} |")  # noqa: T201


if __name__ == "__main__":
    main()
