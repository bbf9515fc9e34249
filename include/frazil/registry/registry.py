"""A Schema Registry and how to reach it, without ever showing its secrets; and AWS Glue, a registry with its own API.

Only this module translates exceptions of the client, of its HTTP library, of TLS and of boto3.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import unquote
from uuid import UUID

from confluent_kafka.schema_registry._sync.schema_registry_client import (
    httpx,  # there are two HTTP libraries; the client chose this one
)
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from frazil.error_codes import REGISTRY_FAILED
from frazil.errors import FrazilError
from frazil.extras import require
from frazil.records.model.format import Framing, SchemaKind, WriterSchema

MASK = "***"
_SECRET_MARKS = ("user.info", "password", "secret", "token")
"""Parts of the names of secret properties: `basic.auth.user.info`, `ssl.key.password`, `bearer.auth.token`, …"""

_PASSWORD = re.compile(r"(?://|^(?!\w+://))[^/:]*:(.+)@")
"""Finds the password in an address: up to the last @, since people forget to write /, ?, # and @ of a password as %2F and so on.
(Python's own parser of addresses fails on malformed ones.) An address of a proxy may lack its scheme, by mistake."""

_SHOWN_CHARACTERS = 300
"""Most characters of a client's message. It is cut after its secrets are masked, since half a secret would not be found."""


@dataclass(frozen=True, slots=True, repr=False)
class Registry:
    """A Schema Registry.

    Attributes:
        url: Root of its API. Several, separated by commas, are tried in turn.
        properties: Further properties of confluent-kafka's registry client, or of Glue's.
        framing: How records name its schemas.
    """

    name: str
    url: str
    properties: Mapping[str, str | float] = field(default_factory=dict)
    framing: Framing = "confluent"

    @property
    def urls(self) -> tuple[str, ...]:
        """Root of the API of each server."""
        return tuple(url.strip() for url in self.url.split(","))

    def redact(self, text: str) -> str:
        """Return a client's message without the secrets of this registry."""
        for secret in sorted(self._secrets(), key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text

    def __str__(self) -> str:
        return f"Schema Registry {self.name!r} ({self.redact(self.url) or 'AWS Glue'})"

    def __repr__(self) -> str:
        shown = {key: MASK if _is_secret(key) else self.redact(str(value)) for key, value in self.properties.items()}
        return f"Registry(name={self.name!r}, url={self.redact(self.url)!r}, properties={shown!r})"

    def _secrets(self) -> Iterator[str]:
        for key, value in self.properties.items():
            if isinstance(value, str) and value and _is_secret(key):
                yield value
                yield from value.split(":", 1)[1:]  # of `user:password`, the password alone, too
        for text in (*self.urls, *map(str, self.properties.values())):  # a proxy has an address, too
            for password in _PASSWORD.findall(text):
                yield from (password, unquote(password))


def _is_secret(key: str) -> bool:
    return any(mark in key.lower() for mark in _SECRET_MARKS)


FOREIGN: Final = (
    SchemaRegistryError,
    OAuthTokenError,
    httpx.HTTPError,
    httpx.InvalidURL,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
)
"""Exceptions that the client is known to raise. OSError: a certificate file is missing. The last four: a property is unknown, or
the answer is not a registry's (the client reads its fields without checks)."""

NO_SCHEMA: Final = 40403
"""The registry's code for an unknown id, besides status 404. A server without such a path answers 404 without this code."""

_REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The server ended the connection: certificates are not the cause."""


@contextmanager
def translated(registry: Registry, doing: str) -> Iterator[None]:
    """Translate the client's exceptions in a block to Retryable or Terminal, with registry and `doing` as coordinates."""
    try:
        yield
    except FOREIGN as error:
        raise as_frazil(error, registry, doing) from error


def is_missing(error: SchemaRegistryError) -> bool:
    """Return whether the server answered that the schema or the path does not exist."""
    return error.http_status_code == HTTPStatus.NOT_FOUND


def is_forbidden(error: SchemaRegistryError) -> bool:
    """Return whether the server accepted the credentials but denies access."""
    return error.http_status_code == HTTPStatus.FORBIDDEN


def is_refused(error: SchemaRegistryError) -> bool:
    """Return whether the server refused the credentials."""
    return error.http_status_code in _REFUSED


def as_frazil(error: BaseException, registry: Registry, doing: str) -> FrazilError:
    """Return Frazil's error for an error of the client.

    Returns:
        `Retryable` if a later try may help: the server does not answer, is slow, busy or broken. `Terminal` if a person must act: on
        credentials, permissions, certificates, the address, or a property.
    """
    description = registry.redact(f"{type(error).__name__}: {error}")[:_SHOWN_CHARACTERS]
    where = f"{registry}: {doing}"
    if isinstance(error, SchemaRegistryError):
        return _answer_error(error.http_status_code, registry, where, description)
    if (tls_error := _tls_error(error)) is not None:
        return REGISTRY_FAILED.terminal(
            f"{where}: no trusted connection ({registry.redact(str(tls_error))})",
            next_step=f"check the certificates in registries.{registry.name} of the settings",
        )
    if isinstance(error, OAuthTokenError) and not isinstance(error.__context__, httpx.TransportError):
        return REGISTRY_FAILED.terminal(
            f"{where}: no token was granted ({description})", next_step=_settings(registry, "properties")
        )
    # An OAuthTokenError with another cause was handled before.
    if isinstance(error, OAuthTokenError | httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol):
        return REGISTRY_FAILED.retryable(
            f"{where}: no answer ({description})",
            next_step=f"check that the registry runs. If it persists, {_settings(registry, 'url')}",
        )
    return REGISTRY_FAILED.terminal(
        f"{where}: {description}",
        next_step=f"check registries.{registry.name} of the settings: url must be the root of a Schema Registry's API, and"
        " properties must be those of confluent-kafka's client",
    )


def _answer_error(status: int, registry: Registry, where: str, description: str) -> FrazilError:
    if status in _BUSY or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return REGISTRY_FAILED.retryable(
            f"{where}: not available now ({description})", next_step="if it persists, check the registry's log"
        )
    if status in _REFUSED:
        return REGISTRY_FAILED.terminal(
            f"{where}: the credentials were refused ({description})",
            next_step=f"check user_info in registries.{registry.name} of the settings, and that it may read schemas",
        )
    return REGISTRY_FAILED.terminal(
        f"{where}: the answer is not from a Schema Registry's API ({description})",
        next_step=f"{_settings(registry, 'url')}: it must be the root of the API, with its path if it has one",
    )


def _settings(registry: Registry, key: str) -> str:
    return f"check registries.{registry.name}.{key} of the settings"


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the TLS error that caused an error, unless the server only ended the connection."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return None if isinstance(error, _CUT_OFF) else error
        error = error.__cause__ or error.__context__
    return None


GLUE_CLIENT: Final = {
    "glue.region": "region_name",
    "glue.access-key-id": "aws_access_key_id",
    "glue.secret-access-key": "aws_secret_access_key",
    "glue.session-token": "aws_session_token",
    "glue.profile-name": "profile_name",
}
"""Properties of the settings, as a catalog of type `glue` has them -> arguments of boto3's session."""

_SECONDS: Final = 4.0
"""Most seconds to connect, and to wait for an answer. Each is tried twice. A schema takes milliseconds."""

_MISSING: Final = "EntityNotFoundException"
_GLUE_REFUSED: Final = frozenset(
    {
        *("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException"),
        *("IncompleteSignatureException", "MissingAuthenticationTokenException", "InvalidClientTokenId"),
    }
)
_GLUE_BUSY: Final = frozenset({"ThrottlingException", "Throttling", "RequestLimitExceeded", "TooManyRequestsException"})
_NO_VERSION: Final = UUID(int=0)
"""A version that does not exist: the answer that it is missing proves that this client may read versions."""


class GlueVersions:
    """Reads versions of schemas from AWS Glue by their UUIDs."""

    def __init__(self, registry: Registry) -> None:
        require("glue", f"registry {registry.name}, with framing: glue,")
        import boto3
        from botocore.config import Config

        self._registry: Final = registry
        session = {GLUE_CLIENT[name]: value for name, value in registry.properties.items()}
        limits = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"total_max_attempts": 2})
        with self._translated("opening the client"):
            self._client: Final[Any] = boto3.Session(**session).client(
                "glue", endpoint_url=registry.url or None, config=limits
            )

    def schema(self, version: UUID) -> WriterSchema | None:
        """Return a version of a schema, or None if it does not exist.

        Raises:
            Retryable: Glue does not answer, or is too busy.
            Terminal: Glue refuses the credentials, or the server is not Glue.
        """
        from botocore.exceptions import ClientError

        with self._translated(f"asking for schema {version}"):
            try:
                answer = self._client.get_schema_version(SchemaVersionId=str(version))
                return WriterSchema(cast("SchemaKind", answer["DataFormat"]), answer["SchemaDefinition"])
            except ClientError as error:
                code = _code(error)
                if code == _MISSING:
                    return None
                # A producer may write the UUID of a schema that this pipeline may not read: that must not stop the pipeline.
                if code != "AccessDeniedException" or version == _NO_VERSION or self.schema(_NO_VERSION) is not None:
                    raise
                return WriterSchema("AVRO", "", refusal="the registry does not show it to this pipeline")

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    def ask(self) -> None:
        """Request a version that does not exist, to check that Glue answers and that this pipeline may read versions."""
        self.schema(_NO_VERSION)

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        from botocore import exceptions as boto

        where = f"{self._registry}: {doing}"
        try:
            yield
        except boto.NoCredentialsError as error:
            # A missing role looks the same as a metadata service of the machine that does not answer just now.
            raise REGISTRY_FAILED.retryable(
                f"{where}: found no AWS credentials here",
                next_step="if it persists, give this machine or pod a role, or set glue.access-key-id and glue.secret-access-key in"
                f" registries.{self._registry.name}.properties of the settings",
            ) from error
        except (boto.HTTPClientError, boto.ConnectionError) as error:
            if isinstance(error, boto.SSLError):
                raise REGISTRY_FAILED.terminal(
                    f"{where}: no trusted connection ({self._registry.redact(str(error))[:_SHOWN_CHARACTERS]})",
                    next_step="let AWS_CA_BUNDLE name the certificates to trust",
                ) from error
            raise REGISTRY_FAILED.retryable(
                f"{where}: no answer ({type(error).__name__})",
                next_step=f"check that this machine can reach Glue. If it persists, check registries.{self._registry.name}.url of the settings",
            ) from error
        except boto.ClientError as error:
            raise self._answer_error(error, where) from error
        except (boto.BotoCoreError, ValueError, TypeError, KeyError) as error:
            description = self._registry.redact(f"{type(error).__name__}: {error}")[:_SHOWN_CHARACTERS]
            raise REGISTRY_FAILED.terminal(
                f"{where}: {description}",
                next_step=f"check url and properties of registries.{self._registry.name} in the settings",
            ) from error

    def _answer_error(self, error: Any, where: str) -> Exception:
        description = self._registry.redact(str(error))[:_SHOWN_CHARACTERS]
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if _code(error) in _GLUE_BUSY or status >= 500:  # noqa: PLR2004 - HTTP's servers
            return REGISTRY_FAILED.retryable(
                f"{where}: not available now ({description})", next_step="if it persists, look at the account's quotas"
            )
        if _code(error) in _GLUE_REFUSED:
            return REGISTRY_FAILED.terminal(
                f"{where}: the credentials were refused ({description})",
                next_step="allow them glue:GetSchemaVersion, on all resources: a request names no registry",
            )
        return REGISTRY_FAILED.terminal(
            f"{where}: {description}",
            next_step=f"check url and properties of registries.{self._registry.name} in the settings",
        )


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
