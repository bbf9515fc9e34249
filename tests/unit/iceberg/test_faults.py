"""What PyIceberg, its catalog and its file system raise, as what the caller may do."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationException,
)
from requests.exceptions import ConnectionError as RequestConnectionError
from requests.exceptions import ConnectTimeout, InvalidHeader, InvalidURL, MissingSchema, ReadTimeout, SSLError
from sqlalchemy.exc import ArgumentError, OperationalError

from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Terminal
from frazil.iceberg.faults import as_frazil, translated


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CommitStateUnknownException("x"), OutcomeUnknown),
        (CommitFailedException("x"), Retryable),
        (ServerError("x"), Retryable),
        (ServiceUnavailableError("x"), Retryable),
        (TooManyRequestsError("x"), Retryable),
        (OperationalError("select", {}, OSError("locked")), Retryable),
        (ConnectionResetError("x"), Retryable),
        (TimeoutError("x"), Retryable),
        (RequestConnectionError("x"), Retryable),
        (ConnectTimeout("x"), Retryable),
        (ReadTimeout("x"), Retryable),
        (SSLError("x"), Retryable),
        (InvalidHeader("x"), Terminal),
        (InvalidURL("x"), Terminal),
        (MissingSchema("x"), Terminal),
        (BadRequestError("x"), Terminal),
        (AuthorizationExpiredError("x"), Terminal),
        (FileNotFoundError("x"), Terminal),
        (pa.ArrowCancelled("x"), Terminal),
        (PermissionError("x"), Terminal),
        (NoSuchTableError("x"), Terminal),
        (NoSuchNamespaceError("x"), Terminal),
        (UnauthorizedError("x"), Terminal),
        (ForbiddenError("x"), Terminal),
        (OAuthError("x"), Terminal),
        (RESTError("x"), Terminal),
        (ValidationException("x"), Terminal),
        (ArgumentError("x"), Terminal),
        (ValueError("x"), Terminal),
        (pa.ArrowInvalid("x"), Terminal),
    ],
    ids=lambda value: "" if isinstance(value, type) else type(value).__name__,
)
def test_foreign_error_gets_out(error: Exception, expected: type[FrazilError]) -> None:
    """Whatever PyIceberg, SQLAlchemy, Arrow or the file system raises says what the caller may do."""
    with (
        pytest.raises(FrazilError, match=f"loading table t: .*{type(error).__name__}") as caught,
        translated("loading table t"),
    ):
        raise error

    assert type(caught.value) is expected
    assert caught.value.__cause__ is error


def test_own_error_is_mapped_again() -> None:
    """A Frazil error passes untouched, and so does a mistake of the program."""
    own = Retryable("later")
    with pytest.raises(Retryable) as caught, translated("loading"):
        raise own
    assert caught.value is own

    with pytest.raises(ZeroDivisionError), translated("loading"):
        raise ZeroDivisionError


def test_long_foreign_message_floods_the_log() -> None:
    """Only the first line of a foreign message is kept: SQL errors carry whole statements."""
    assert as_frazil(ValueError("first\nsecond"), "loading").message == "loading: ValueError: first"
    assert as_frazil(ValueError(), "loading").message == "loading: ValueError: no message"
