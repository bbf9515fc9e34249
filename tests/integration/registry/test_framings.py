"""Schemas that records name otherwise than Confluent's clients: versions of AWS Glue, and Apicurio's own two kinds of ids."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from uuid import UUID, uuid4

import boto3
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from frazil.errors import FrazilError, Retryable, Terminal
from frazil.pipeline.settings.settings import RegistrySettings
from frazil.records.model.format import WriterSchema
from frazil.registry.client import RegistrySchemas, shared_schemas
from frazil.registry.registry import Registry
from frazil.verify.kafka import Registries
from frazil.verify.values.native import UnjudgedError
from tests.glue_server import KEYS, glue_server
from tests.integration.registry.test_failures import Scripted, served
from tests.registry_server import RegistryServer

pytestmark = [
    pytest.mark.tried("Schema Registry: Apicurio, by its own ids", "real"),
    pytest.mark.tried("Schema Registry: AWS Glue", "test double"),
]

FreePorts = Callable[[int], list[int]]
ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}, separators=(",", ":")
)
NOBODY = UUID(int=7)


@pytest.fixture(scope="module")
def glue(free_ports: FreePorts) -> Iterator[str]:
    with glue_server(*free_ports(1)) as uri:
        yield uri


def registered(uri: str, kind: str, text: str) -> UUID:
    """Register a schema in Glue; the version's UUID."""
    names = {"region_name": KEYS["glue.region"], "aws_access_key_id": "tests", "aws_secret_access_key": "tests"}
    schema = {"SchemaName": f"s-{uuid4().hex}", "DataFormat": kind, "SchemaDefinition": text}
    with closing(boto3.client("glue", endpoint_url=uri, **names)) as client:
        created = client.create_schema(**schema, Compatibility="NONE")
    return UUID(created["SchemaVersionId"])


def of_glue(uri: str, **properties: str) -> RegistrySchemas:
    return RegistrySchemas(Registry("main", uri, KEYS | properties, "glue"))


def verified(name: str, key: int | UUID, **settings: Any) -> tuple[str, Any]:
    """What verify's own client reads."""
    return Registries({name: RegistrySettings(**settings)})(name).read(key)


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_version_of_glue_is_read_by_its_uuid(glue: str, kind: str) -> None:
    """Also by verify, which has a client of its own; a version that is not there is no failure."""
    text = ORDER if kind == "AVRO" else json.dumps({"$schema": "http://json-schema.org/draft-07/schema#"})
    version = registered(glue, kind, text)
    with closing(of_glue(glue)) as schemas:
        schemas.ask()
        decoded_schema, missing = schemas.schema(version), schemas.schema(NOBODY)

        assert decoded_schema == WriterSchema(kind, text)  # type: ignore[arg-type]
        assert (missing, schemas.schema(1)) == (None, None)
        assert shared_schemas(schemas.registry) is pickle.loads(pickle.dumps(schemas))  # noqa: S301 - our own
    assert json.loads(verified("main", version, framing="glue", url=glue, properties=KEYS)[0]) == json.loads(text)


def refused(code: str, status: int = 400) -> tuple[int, str]:
    return status, json.dumps({"__type": code, "message": "because"})


@pytest.mark.parametrize(
    ("answer", "expected", "text"),
    [
        (refused("UnrecognizedClientException"), Terminal, "glue:GetSchemaVersion"),
        (refused("ExpiredTokenException"), Terminal, "glue:GetSchemaVersion"),
        (refused("AccessDeniedException"), Terminal, "glue:GetSchemaVersion"),
        (refused("InvalidInputException"), Terminal, "registries.main"),
        ((200, "<html>sign in</html>"), Terminal, "registries.main"),
        (refused("ThrottlingException"), Retryable, "quotas"),
        (refused("InternalServiceException", 500), Retryable, "quotas"),
    ],
)
def test_answer_of_glue_tells_whether_another_try_helps(
    answer: tuple[int, str], expected: type[FrazilError], text: str
) -> None:
    """Nobody's record becomes a dead letter because of a credential or a quota."""
    with (
        served(Scripted(otherwise=answer)) as script,
        closing(of_glue(f"http://127.0.0.1:{script.port}", **{"glue.secret-access-key": "hunter2"})) as schemas,
        pytest.raises(expected, match=text) as caught,
    ):
        schemas.schema(NOBODY)

    assert "hunter2" not in str(caught.value)


def test_glue_that_does_not_answer_is_asked_again_later(free_ports: FreePorts) -> None:
    """Nobody knows what the values are."""
    with closing(of_glue(f"http://127.0.0.1:{free_ports(1)[0]}")) as schemas, pytest.raises(Retryable, match="url"):
        schemas.schema(NOBODY)


class Guarded(Scripted):
    """A Glue that shows one registry's versions only: it has no others, or refuses them."""

    def __init__(self, hidden: UUID) -> None:
        super().__init__(otherwise=refused("EntityNotFoundException"))
        self.hidden = hidden

    def answer_to(self, body: bytes) -> tuple[int, str] | None:
        """Refuse the hidden one."""
        return refused("AccessDeniedException") if str(self.hidden).encode() in body else None


def test_version_of_a_hidden_registry_does_not_stop_other_records() -> None:
    """Anybody may write the UUID of a schema that this pipeline may not see."""
    with served(Guarded(NOBODY)) as script, closing(of_glue(f"http://127.0.0.1:{script.port}")) as schemas:
        decoded_schema = schemas.schema(NOBODY)

        assert decoded_schema is not None
        assert "does not show it" in decoded_schema.refusal
        assert schemas.schema(UUID(int=8)) is None


@pytest.fixture
def ids(registry: RegistryServer) -> tuple[int, int, str]:
    """Global id and content id of a schema that is registered twice, and its text: the second time by another global id."""
    text = ORDER.replace("Order", f"Order{uuid4().hex}")
    with SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client:
        content = [client.register_schema(f"t-{uuid4().hex}", Schema(text, "AVRO")) for _ in range(2)]
    assert content[0] == content[1]
    own = registry.url.replace("ccompat/v7", "registry/v3")
    with urlopen(f"{own}/search/versions?contentId={content[0]}") as answer:  # noqa: S310 - the test's
        versions = json.load(answer)["versions"]
    newest = max(version["globalId"] for version in versions)
    assert len(versions) == 2
    return newest, content[0], text


@pytest.mark.parametrize("framing", ["apicurio-global-id", "apicurio-content-id"])
def test_schema_of_apicurio_is_read_by_the_id_that_its_framing_has(
    registry: RegistryServer, ids: tuple[int, int, str], framing: str
) -> None:
    """One content may be many versions: by the wrong kind of id another schema is found, or none."""
    key = ids[0] if framing == "apicurio-global-id" else ids[1]
    assert ids[0] > ids[1]
    with closing(RegistrySchemas(Registry("main", registry.url, {}, framing))) as schemas:  # type: ignore[arg-type]
        schemas.ask()
        decoded_schema, missing = schemas.schema(key), schemas.schema(999_999)

    assert (decoded_schema, missing) == (WriterSchema("AVRO", ids[2]), None)
    assert json.loads(verified("main", key, framing=framing, url=registry.url)[0]) == json.loads(ids[2])


def test_server_without_global_ids_makes_no_dead_letters() -> None:
    """Apicurio 2 has no such search: then no record is at fault."""
    script = Scripted(otherwise=(404, '{"error_code": 404, "message": "no such page"}'))
    with served(script) as script:
        url = f"http://127.0.0.1:{script.port}/apis/ccompat/v7"
        registry = Registry("main", url, {"retries.wait.ms": 1}, "apicurio-global-id")
        with closing(RegistrySchemas(registry)) as schemas, pytest.raises(Terminal, match="Apicurio 3") as caught:
            schemas.schema(1)

    assert "apicurio-content-id in registries.main" in str(caught.value)
    assert script.asked == ["/apis/registry/v3/search/versions"]


def scripted_search(versions: list[dict[str, int]]) -> Scripted:
    """A registry whose search tells of these versions, whatever it is asked."""
    return Scripted(
        {
            "/apis/registry/v3/search/versions": (200, json.dumps({"versions": versions, "count": len(versions)})),
            "/apis/ccompat/v7/schemas/types": (200, '["AVRO"]'),
            "/apis/ccompat/v7/schemas/ids/1": (200, json.dumps({"schema": ORDER})),
        }
    )


def test_search_that_ignores_the_global_id_gives_no_other_schema() -> None:
    """Apicurio leaves out parameters that it does not know: then the first version of all would be taken."""
    with served(scripted_search([{"globalId": 1, "contentId": 1}])) as script:
        registry = Registry("main", f"http://127.0.0.1:{script.port}/apis/ccompat/v7", {}, "apicurio-global-id")
        with closing(RegistrySchemas(registry)) as schemas:
            assert schemas.schema(1) == WriterSchema("AVRO", ORDER)
            with pytest.raises(Terminal, match="can't look up versions by global id"):
                schemas.schema(5)


def test_server_whose_ids_are_global_ones_gives_no_other_schema() -> None:
    """Apicurio in its legacy mode: below the content id lies another version, or none."""
    script = scripted_search([{"globalId": 5, "contentId": 1, "artifactId": "orders-value", "version": "2"}])
    versions = "/apis/ccompat/v7/schemas/ids/1/versions"
    with served(script) as script:
        registry = Registry("main", f"http://127.0.0.1:{script.port}/apis/ccompat/v7", {}, "apicurio-global-id")
        for listed in ({"subject": "orders-value", "version": 1}, {"subject": "other-value", "version": 2}):
            script.answers[versions] = (200, json.dumps([listed]))
            with closing(RegistrySchemas(registry)) as schemas, pytest.raises(Terminal, match="takes global ids"):
                schemas.schema(5)
        script.answers[versions] = (200, json.dumps([{"subject": "orders-value", "version": 2}]))
        with closing(RegistrySchemas(registry)) as schemas:
            assert schemas.schema(5) == WriterSchema("AVRO", ORDER)


def test_registry_without_a_first_version_answers() -> None:
    """`frazil doctor` asks for it: a new registry has none, and an old one may have deleted it."""
    with served(scripted_search([])) as script:
        registry = Registry("main", f"http://127.0.0.1:{script.port}/apis/ccompat/v7", {}, "apicurio-global-id")
        with closing(RegistrySchemas(registry)) as schemas:
            schemas.ask()


def test_version_that_is_no_json_does_not_end_verify() -> None:
    """Anybody may write the global id of a Protobuf schema or of an XSD."""
    answers = {"/apis/registry/v3/ids/globalIds/7": (200, 'syntax = "proto3";')}
    with served(Scripted(answers)) as script:
        url = f"http://127.0.0.1:{script.port}/apis/ccompat/v7"
        with pytest.raises(UnjudgedError, match="no schema 7 that"):
            verified("main", 7, framing="apicurio-global-id", url=url)


def test_verify_says_what_glue_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A region or a profile that is not there is a matter of the settings."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    for properties in ({}, {"glue.profile-name": "absent"}):
        with pytest.raises(Terminal, match="registry main"):
            verified("main", NOBODY, framing="glue", properties=properties)
