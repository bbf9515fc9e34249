"""A registry, as far as it needs no request."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from frazil.errors import Terminal
from frazil.project import Project
from frazil.registry.client import MAX_ID, RegistrySchemas, configuration
from frazil.registry.registry import Registry, as_frazil
from frazil.run.state.context import RunContext

SECRETIVE = Registry(
    "main",
    "https://me:p%40ss@one.example,https://two.example",
    {"basic.auth.user.info": "me:hunter2", "bearer.auth.token": "t0ken", "ssl.ca.location": "/etc/ca.pem"},
)


@pytest.mark.parametrize("text", [repr(SECRETIVE), str(SECRETIVE), repr(RegistrySchemas(SECRETIVE))])
def test_no_text_of_a_registry_shows_a_secret(text: str) -> None:
    """A registry is named in every message, and messages go to logs."""
    assert "two.example" in text
    assert not [secret for secret in ("p%40ss", "hunter2", "t0ken") if secret in text]


@pytest.mark.parametrize("message", ["bad: me:hunter2", "hunter2", "t0ken", "p%40ss", "p@ss"])
def test_client_messages_are_cleared_of_secrets(message: str) -> None:
    """A client repeats addresses and headers in its messages."""
    assert not {"hunter2", "t0ken", "p%40ss", "p@ss"} & set(SECRETIVE.redact(message).replace(":", " ").split())


@pytest.mark.parametrize(
    "registry",
    [
        pytest.param(Registry("main", "https://me@corp.example:hunter2@one.example"), id="user with @"),
        pytest.param(Registry("main", "https://me:hunter@2way@one.example"), id="password with @"),
        pytest.param(Registry("main", "https://me:hunter#2way@one.example"), id="password with #"),
        pytest.param(Registry("main", "https://me:hunter?2way@one.example"), id="password with ?"),
        pytest.param(Registry("main", "https://me:hunter/2way@one.example"), id="password with /"),
        pytest.param(Registry("main", "https://m?e:hunter2@one.example"), id="user with ?"),
        pytest.param(Registry("main", "https://a", {"proxy": "http://me:hunter2@proxy:3128"}), id="proxy"),
        pytest.param(Registry("main", "https://a", {"proxy": "me:hunter2@proxy:3128"}), id="proxy without scheme"),
    ],
)
def test_password_in_any_address_is_masked(registry: Registry) -> None:
    """An address takes the last @ as the end of the credentials, and a proxy has an address, too."""
    message = f"{registry} {registry!r} {registry.redact(str([registry.url, registry.properties]))}"

    assert not [part for part in ("hunter", "2way") if part in message]


def test_secret_that_is_cut_in_a_long_message_is_masked() -> None:
    """A client quotes what it sent, and half a password helps to guess the rest."""
    registry = Registry("main", "http://a", {"ssl.key.password": "hunter2hunter2"})

    error = as_frazil(ValueError(f"{'x' * 290} hunter2hunter2"), registry, "asking")

    assert "hunter" not in str(error)


def test_a_malformed_address_still_makes_a_message() -> None:
    """Failing while a message is made hides what it was about."""
    assert "http://[" in str(Registry("main", "http://["))


def test_registry_travels_to_a_worker_by_its_address() -> None:
    """A connection can't be pickled; a worker opens its own."""
    unpickled = pickle.loads(pickle.dumps(RegistrySchemas(SECRETIVE)))  # noqa: S301, our own bytes

    assert unpickled.registry == SECRETIVE


def test_batches_of_a_process_share_a_registry_cache(tmp_path: Path) -> None:
    """Else each batch would ask for unknown ids anew, and their limit would be one per batch."""
    settings = {
        "clusters": {"local": {"bootstrap_servers": "x:1"}},
        "catalogs": {"lake": {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}},
        "registries": {"main": {"url": "http://127.0.0.1:9"}},
    }
    value = {"format": "avro", "registry": "main"}
    table = {"table": "shop.orders", "columns": {"id": "long"}}
    pipeline = {"name": "orders", "source": {"topics": ["orders"]}, "destinations": [table], "value": value}
    (tmp_path / "settings.yaml").write_text(json.dumps(settings))
    (tmp_path / "orders.yaml").write_text(json.dumps(pipeline))
    env = {"FRAZIL_HOME": str(tmp_path / "home"), "FRAZIL_SETTINGS": str(tmp_path / "settings.yaml")}
    project = Project.load({**env, "FRAZIL_PIPELINES": str(tmp_path)})
    first, second = (RunContext.open(project, project.pipeline("orders")).schemas["main"] for _ in range(2))

    assert first is second is pickle.loads(pickle.dumps(first))  # noqa: S301, our own bytes


def test_requests_time_out_by_default() -> None:
    """The client waits for ever if it isn't told how long."""
    assert configuration(Registry("main", "http://a,http://b")) == {
        "url": "http://a,http://b",
        "timeout": 2.0,
        "max.retries": 1,
        "retries.wait.ms": 200,
        "retries.max.wait.ms": 1000,
    }
    assert configuration(Registry("main", "http://a", {"timeout": 7.0}))["timeout"] == 7


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        pytest.param(Registry("main", "http://a", {"zzz": "1"}), "zzz", id="unknown property"),
        pytest.param(Registry("main", "ftp://a"), "ftp://a", id="scheme"),
        pytest.param(Registry("main", "http://["), "http://", id="malformed"),
        pytest.param(Registry("main", "https://a", {"ssl.ca.location": "/no/such/file"}), "No such file", id="no file"),
        pytest.param(
            Registry("main", "http://a", {"basic.auth.user.info": "me"}), "basic.auth.user.info", id="user info"
        ),
    ],
)
def test_registry_that_can_never_be_opened_is_a_terminal_error(registry: Registry, expected: str) -> None:
    """Trying again later would never help; the message says where to look."""
    with pytest.raises(Terminal, match=expected) as caught:
        RegistrySchemas(registry).schema(1)

    assert "registries.main" in str(caught.value)


def test_impossible_id_is_not_requested() -> None:
    """A server answers an id beyond 31 bits as if its address were wrong, which would stop the pipeline."""
    assert RegistrySchemas(Registry("main", "http://[")).schema(MAX_ID + 1) is None
