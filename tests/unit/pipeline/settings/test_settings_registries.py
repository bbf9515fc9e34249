"""Registries in the settings file."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from frazil.pipeline.settings.settings import RegistrySettings, Settings

ELSE = {
    "clusters": {"local": {"bootstrap_servers": "a:1"}},
    "catalogs": {"lake": {"uri": "sqlite:///u", "warehouse": "w"}},
}


def test_registry_is_optional() -> None:
    """Settings files that were written before stay valid."""
    assert Settings.model_validate(ELSE).registries == {}


def test_keys_reach_the_client_under_its_own_names() -> None:
    """A credential under a name that the client does not know is no credential."""
    settings = RegistrySettings(
        url="https://a",
        user_info="me:hunter2",
        ca_file="ca.pem",
        certificate_file="me.pem",
        key_file="me.key",
        key_password="hunter3",
        properties={"timeout": "5"},
    )

    assert settings.client_properties == {
        "timeout": 5.0,
        "basic.auth.user.info": "me:hunter2",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.key",
        "ssl.key.password": "hunter3",
    }


def test_no_secret_is_in_the_repr() -> None:
    """Settings are logged where something fails."""
    settings = RegistrySettings(
        url="https://me:hunter1@a",
        user_info="me:hunter2",
        certificate_file="me.pem",
        key_password="hunter3",
        properties={"bearer.auth.token": "hunter4"},
    )

    assert "hunter" not in repr(settings)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"url": "registry:8081"}, "http://"),
        ({"url": "http://a,mock://b"}, "http://"),
        ({"url": "http://a", "user_info": "me"}, "user:password"),
        ({"url": "http://a", "key_file": "me.key"}, "certificate_file"),
        ({"url": "http://a", "properties": {"ssl.ca.location": "x"}}, "ca_file"),
        ({"url": "http://a", "properties": {"timeout": "soon"}}, "timeout: expected a number"),
        ({"url": "http://a", "password": "x"}, "password"),
        ({}, "url"),
    ],
)
def test_contradicting_registry_settings_are_refused(given: dict[str, object], expected: str) -> None:
    """Found at validation, not by the first batch."""
    with pytest.raises(ValidationError, match=expected):
        RegistrySettings.model_validate(given)
