"""What a spark connect server must be for a job, as far as it can be told without one."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import grpc
import pyspark
import pytest

from frazil.doctor.services import warm_spark
from frazil.errors import Retryable, Terminal, Unavailable
from frazil.project import Project
from frazil.runtime.home import Home
from frazil.spark import connect as connect_server
from frazil.spark.connect import Server, _with_time_limit
from frazil.spark.submit.server import managed_engine, managed_server

SERVER = Server("warm", "sc://127.0.0.1:9")
SETTINGS = """
clusters: {local: {bootstrap_servers: "127.0.0.1:1"}}
catalogs: {lake: {uri: "sqlite:///c.db", warehouse: "file:///w"}}
engines: {warm: {type: connect, managed: true}}
"""


def test_server_of_another_spark_version_is_refused() -> None:
    """Both versions are named: client and server of different releases agree on some plans and differ on others."""
    with pytest.raises(Terminal, match=rf"Spark 4\.0\.0, and pyspark here is {pyspark.__version__}"):
        SERVER.require_version("4.0.0")
    SERVER.require_version(pyspark.__version__)


def test_client_gives_up_soon_where_nobody_listens() -> None:
    """The message has the coordinates; another try may help."""
    with pytest.raises(Retryable, match=r"engine warm.*sc://127\.0\.0\.1:9 does not answer"):
        SERVER.require_listening()


def test_server_that_never_answers_is_given_up() -> None:
    """It takes connections, and Spark's client would wait without end."""
    over = Event()
    try:
        with pytest.raises(Unavailable, match=r"sc://127\.0\.0\.1:9 takes connections and gave no answer"):
            _with_time_limit(0.1, over.wait, SERVER)
    finally:
        over.set()


def test_secret_of_address_is_hidden() -> None:
    """Parameters that Spark's client does not know are headers, such as a proxy's token: messages show the place alone."""
    server = Server("warm", "sc://127.0.0.1:9/;use_ssl=true;x-proxy-token=hunter2")

    with pytest.raises(Retryable, match=r"sc://127\.0\.0\.1:9 does not answer") as refused:
        server.require_listening()

    assert "hunter2" not in f"{refused.value} {server!r}"


def test_terminal_and_airflow_share_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have different PYTHONPATHs, and mean the same server: its code does not come from who starts it."""
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_JARS": str(Home.resolve().jars)}
    project = Project.load(env | {"FRAZIL_SETTINGS": str(tmp_path / "settings.yaml")})
    engine = managed_engine(project)
    assert engine is not None
    releases = set()
    for sources in ("/somewhere/include:/somewhere/plugins", ""):
        monkeypatch.setenv("PYTHONPATH", sources)
        releases.add(managed_server(project, engine).release)

    assert len(releases) == 1


def test_doctor_names_a_managed_server_that_is_away(tmp_path: Path, free_ports: Any) -> None:
    """Runs go on without it: a warning, with the command that starts it. A server of somebody else is not looked at."""
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    env = {"FRAZIL_HOME": str(tmp_path), "FRAZIL_SETTINGS": str(tmp_path / "settings.yaml")}
    project = Project.load(env | {"FRAZIL_SPARK_CONNECT_PORT": str(free_ports(1)[0])})
    (finding,) = warm_spark(project)

    assert (finding.state, finding.observed) == ("warning", "the server is not up")
    assert "frazil up --only spark" in (finding.next_step or "")
    (tmp_path / "settings.yaml").write_text(SETTINGS.replace("managed: true", "url: 'sc://h:1'"))
    assert not list(warm_spark(Project.load(env)))


@pytest.mark.parametrize(("is_managed", "expected"), [(True, Retryable), (False, Terminal)])
def test_workers_of_another_frazil_version_are_refused(
    spark: Any, monkeypatch: pytest.MonkeyPatch, is_managed: bool, expected: type[Exception]
) -> None:
    """A managed server has the new code at the next try; of another one somebody must give it to the workers."""
    server = replace(SERVER, is_managed=is_managed)
    server.require_sources(spark)
    monkeypatch.setattr(connect_server, "digest", lambda: "another")

    with pytest.raises(expected, match="expected code another, found"):
        server.require_sources(spark)


@pytest.mark.parametrize(
    "address", ["sc://h:1", "sc://h:1/", "sc://h:1/;use_ssl=true", "sc://h:1/;use_ssl=true;x-team=a%3Bb"]
)
def test_channel_has_the_parameters_of_the_address(address: str) -> None:
    """A session is asked for with them."""
    session = str(uuid4())
    channel = Server("warm", address).channel(session)

    assert (channel.endpoint, channel.session_id, channel.use_ssl) == ("h:1", session, "use_ssl" in address)
    assert dict(channel.metadata()) == ({"x-team": "a;b"} if "x-team" in address else {})


def test_token_of_a_managed_server_goes_to_its_listener_alone(tmp_path: Path) -> None:
    """Somebody else's listener of the same number, at the other loopback address that `localhost` means, gets no connection."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as foreign:
        foreign.settimeout(1)
        address = f"sc://localhost:{foreign.getsockname()[1]}/;token=secret"
        channel = Server("warm", address, is_managed=True).channel(str(uuid4())).toChannel()
        with pytest.raises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(timeout=2)
        channel.close()

        with pytest.raises(TimeoutError):
            foreign.accept()
