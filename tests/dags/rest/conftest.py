"""The REST API as Airflow's own application mounts it, with Airflow's own logins, over a project of the test."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow_home import DAGS  # first: Airflow reads its home when it is imported

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

Login = Callable[[str | None], "TestClient"]
Rewrite = Callable[..., None]

SECRET = "Hunter2-of-the-catalog"


@pytest.fixture(scope="session")
def airflow() -> Iterator[FastAPI]:
    """Airflow's api-server application, with the plugins that it finds."""
    from airflow.api_fastapi.app import create_app
    from airflow.utils import db

    db.initdb()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "of the tests, " * 8)
        yield create_app(apps="core")


@pytest.fixture
def rewrite_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rewrite:
    """Write the settings of the test's project: what becomes of changes, and which references pipelines may use."""

    def rewrite(changes: str = "file", allow: tuple[str, ...] = ()) -> None:
        settings = {
            "clusters": {"local": {"bootstrap_servers": "127.0.0.1:1"}},
            "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}},
            "references": {"allow": allow},
            "rest_api": {"changes": changes},
        }
        (tmp_path / "settings.yaml").write_text(json.dumps(settings))
        monkeypatch.setenv("FRAZIL_SETTINGS", str(tmp_path / "settings.yaml"))

    return rewrite


@pytest.fixture
def login(airflow: FastAPI, pipelines: Path, rewrite_settings: Rewrite) -> Iterator[Login]:
    """Clients of the API: of somebody with a role in Airflow, of one without any (`""`), of one who did not log in (None)."""
    from fastapi.testclient import TestClient

    from frazil_airflow.page import request
    from frazil_airflow.page.project_source import ProjectSource

    rewrite_settings()
    api = mounted(airflow)
    source: list[ProjectSource] = []

    def present_source() -> ProjectSource:
        if not source:
            source.append(ProjectSource(dict(os.environ)))
        source[0].look_again()
        return source[0]

    api.dependency_overrides[request.shared_source] = present_source

    def client(role: str | None) -> TestClient:
        headers = {} if role is None else {"Authorization": f"Bearer {token(role)}"}
        return TestClient(airflow, base_url="http://testserver/frazil/connect", headers=headers)

    yield client
    api.dependency_overrides.clear()


def mounted(airflow: FastAPI) -> Any:
    """The API itself, of the application that mounts it."""
    return next(route.app for route in airflow.routes if getattr(route, "path", "") == "/frazil/connect")


def token(role: str) -> str:
    """A token of Airflow's own for a user with a role; `""` has none."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    user = SimpleAuthManagerUser(username=f"ana_{role or 'nobody'}", role=role or None)
    return get_auth_manager().generate_jwt(user)


@pytest.fixture
def airflow_reads(login: Login) -> Callable[[], None]:
    """Let Airflow read the DAGs of the pipelines that are there now."""

    def read() -> None:
        from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
        from airflow.models.dagbundle import DagBundleModel
        from airflow.utils.session import create_session

        with create_session() as session:
            if session.get(DagBundleModel, "dags-folder") is None:
                session.add(DagBundleModel(name="dags-folder"))
        sync_bag_to_db(DagBag(DAGS / "ingest.py"), "dags-folder", None)

    return read


@pytest.fixture
def repository(pipelines: Path) -> Callable[..., str]:
    """The folder of pipeline files as a Git working tree; runs Git in it."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(pipelines), "-c", "user.name=t", "-c", "user.email=t@localhost", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "begin")
    return git


@pytest.fixture
def served(airflow: FastAPI, login: Login) -> Iterator[str]:
    """The address of Airflow on a port of this machine, for clients that bring their own HTTP."""
    with _served(airflow) as address:
        yield address


@contextmanager
def _served(airflow: FastAPI) -> Iterator[str]:
    import uvicorn

    config = uvicorn.Config(airflow, host="127.0.0.1", port=0, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        thread.join(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/frazil/connect"
    finally:
        server.should_exit = True
        thread.join()
