"""Maps exceptions of the registry's client, its HTTP library and TLS to Frazil's errors. No other module does."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final

# The client takes the first of two HTTP libraries that is installed; this is the one it took.
from confluent_kafka.schema_registry._sync.schema_registry_client import httpx
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from frazil.error_codes import REGISTRY_FAILED
from frazil.errors import FrazilError
from frazil.registry.registry import Registry

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
"""What the client is known to raise. OSError: a certificate that is not there. The last four: a property that it does
not know, or an answer that is none of a registry's (it reads fields without looking)."""

NO_SCHEMA: Final = 40403
"""The registry's own code for an id that it does not know; a server that has no such page says 404 without it."""

_REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED})
_BUSY: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The other side went away in the middle: no matter of certificates."""


@contextmanager
def translated(registry: Registry, doing: str) -> Iterator[None]:
    """Run a block; what it raises becomes Retryable or Terminal, with registry and `doing` as its coordinates."""
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
    """Translate an error of the client into Frazil's error with a next step.

    Returns:
        `Retryable` if a later try may help: no answer, a slow, busy or broken server. `Terminal` if a person must act:
        credentials, permissions, certificates, the address, a property.
    """
    description = registry.redact(f"{type(error).__name__}: {str(error)[:300]}")
    where = f"{registry}: {doing}"
    if isinstance(error, SchemaRegistryError):
        return _answer_error(error.http_status_code, registry, where, description)
    if (broken := _tls(error)) is not None:
        return REGISTRY_FAILED.terminal(
            f"{where}: no trusted connection ({registry.redact(str(broken))})",
            next_step=f"check the certificates in registries.{registry.name} of the settings",
        )
    if isinstance(error, OAuthTokenError) and not isinstance(error.__context__, httpx.TransportError):
        return REGISTRY_FAILED.terminal(
            f"{where}: no token was granted ({description})", next_step=_settings(registry, "properties")
        )
    if _is_silence(error):
        return REGISTRY_FAILED.retryable(
            f"{where}: no answer ({description})",
            next_step=f"check that the registry runs. If it persists, {_settings(registry, 'url')}",
        )
    return REGISTRY_FAILED.terminal(
        f"{where}: {description}",
        next_step=f"check registries.{registry.name} of the settings: url must be the root of a Schema Registry's API, and"
        " properties must be such as confluent-kafka's client knows",
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


def _is_silence(error: BaseException) -> bool:
    if isinstance(error, OAuthTokenError):
        return True  # its other cause was looked at before
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.UnsupportedProtocol)


def _tls(error: BaseException | None) -> ssl.SSLError | None:
    """Return the reason of a failed TLS connection: it is the innermost of the exceptions that the HTTP library raises."""
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return None if isinstance(error, _CUT_OFF) else error
        error = error.__cause__ or error.__context__
    return None
