"""Maps what Kafka's client, PyIceberg and their libraries raise to Frazil's errors. Once, here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException
from pydantic import ValidationError
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    UnauthorizedError,
    ValidationException,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from frazil.errors import FrazilError, Retryable, Terminal, quotable, without_values

_FOREIGN = (
    ImportError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OSError,
    RESTError,
    SQLAlchemyError,
    ValidationError,
    ValidationException,
    ValueError,
    pa.ArrowException,
)
_REFUSED = (
    ForbiddenError,
    ImportError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    PermissionError,
    FileNotFoundError,
    UnauthorizedError,
)
_UNAVAILABLE = (DBAPIError, OSError, RESTError)

_DOORS_CLOSED = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes begin with an underscore
        KafkaError._SSL,  # noqa: SLF001
        KafkaError._INVALID_ARG,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    }
)
_SECRET_MARKS = ("password", "secret", "token", "jaas", "key")


@contextmanager
def reading_tables(doing: str) -> Iterator[None]:
    """Run a block that reads tables; what it raises becomes Retryable or Terminal, with `doing` as its coordinates."""
    try:
        yield
    except FrazilError:
        raise
    except _FOREIGN as error:
        lines = str(error).splitlines() or ["no message"]
        said = f"{doing}: {type(error).__name__}: {without_values(lines[0])}"
        if isinstance(error, _UNAVAILABLE) and not isinstance(error, _REFUSED):
            raise Retryable(
                said, next_step="try again; if it stays, look at the catalog and the storage"
            ) from quotable(error)
        raise Terminal(
            said, next_step="check the catalog's entry in the settings file and its permissions"
        ) from quotable(error)


def kafka_fault(
    error: KafkaException | KafkaError, doing: str, properties: Mapping[str, str], more: str = ""
) -> FrazilError:
    """The Frazil error for an error of the Kafka client.

    Args:
        error: What it said.
        doing: What was tried, with its coordinates.
        properties: The cluster's, whose secrets are kept out of the message.
        more: What connections failed with meanwhile.
    """
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    said = f"{doing}: {cause.str()} ({cause.name()}){more}"
    for key, value in properties.items():
        if value and any(mark in key.lower() for mark in _SECRET_MARKS):
            said = said.replace(value, "***")
    if cause.code() in _DOORS_CLOSED:
        return Terminal(
            said, next_step="check the cluster's entry in the settings file; verify needs Describe and Read"
        )
    return Retryable(said, next_step="try again; if it stays, look at the brokers")
