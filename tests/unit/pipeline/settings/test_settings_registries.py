"""Registries in the settings file."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.settings import RegistrySettings, Settings, unknown_names

VALID = {
    "clusters": {"local": {"bootstrap_servers": "a:1"}},
    "catalogs": {"lake": {"uri": "sqlite:///u", "warehouse": "w"}},
}


def test_registry_is_optional() -> None:
    """Settings files that were written before stay valid."""
    assert Settings.model_validate(VALID).registries == {}


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
    ("options", "expected"),
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
def test_contradicting_registry_settings_are_refused(options: dict[str, object], expected: str) -> None:
    """Found at validation, not by the first batch."""
    with pytest.raises(ValidationError, match=expected):
        RegistrySettings.model_validate(options)


GLUE = {"framing": "glue", "properties": {"glue.region": "eu-central-1"}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"framing": "other", "url": "http://a"}, "framing"),
        ({"framing": "apicurio-content-id"}, "url is missing"),
        ({"framing": "apicurio-global-id", "url": "http://a/apis/registry/v3"}, "ccompat"),
        (GLUE | {"user_info": "me:hunter2"}, "user_info: framing glue has no such key"),
        (GLUE | {"url": "glue.eu-central-1"}, "http://"),
        ({"framing": "glue", "properties": {"region": "x"}}, "properties.region: framing glue"),
    ],
)
def test_registry_that_does_not_fit_its_framing_is_refused(options: dict[str, object], expected: str) -> None:
    """A key that a client does not have would be a setting that does nothing."""
    with pytest.raises(ValidationError, match=expected):
        RegistrySettings.model_validate(options)


def test_glue_needs_no_address() -> None:
    """Amazon's own is that of the region."""
    assert RegistrySettings.model_validate(GLUE).client_properties == {"glue.region": "eu-central-1"}


@pytest.mark.parametrize("half", ["value", "key"])
def test_protobuf_is_refused_behind_another_frame_than_that_of_confluent(half: str) -> None:
    """Else each record would be a dead letter."""
    settings = Settings.model_validate(VALID | {"registries": {"glue": GLUE}})
    destination = {"table": "a.b", "columns": {"id": "long"}}
    file = {"name": "p", "source": {"topics": ["t"]}, "value": {"format": "json"}, "destinations": [destination]}

    pipeline = Pipeline.model_validate(file | {half: {"format": "protobuf", "registry": "glue"}})

    problems = [line for line in unknown_names(pipeline, settings) if line.startswith(half)]
    assert problems == [
        f"{half}.format: protobuf is read behind Confluent's frame only, and registries.glue has framing: glue"
    ]
