"""What PyIceberg, its catalog and its file system raise, as what the caller may do."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import process_time

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

from frazil.error_codes import INTERNAL
from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Terminal, without_values
from frazil.iceberg.errors import as_frazil, translated
from frazil.verify.catalogs import reading_tables


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
def test_foreign_error_becomes_a_frazil_error(error: Exception, expected: type[FrazilError]) -> None:
    """Whatever PyIceberg, SQLAlchemy, Arrow or the file system raises says what the caller may do."""
    with (
        pytest.raises(FrazilError, match=f"loading table t: .*{type(error).__name__}") as caught,
        translated("loading table t"),
    ):
        raise error

    assert type(caught.value) is expected
    assert caught.value.__cause__ is error


def test_frazil_error_passes_unchanged() -> None:
    """A Frazil error passes untouched, and so does a mistake of the program."""
    own = INTERNAL.retryable("later")
    with pytest.raises(Retryable) as caught, translated("loading"):
        raise own
    assert caught.value is own

    with pytest.raises(ZeroDivisionError), translated("loading"):
        raise ZeroDivisionError


def test_only_first_line_of_a_foreign_message_is_kept() -> None:
    """Only the first line of a foreign message is kept: SQL errors carry whole statements."""
    assert as_frazil(ValueError("first\nsecond"), "loading").message == "loading: ValueError: first"
    assert as_frazil(ValueError(), "loading").message == "loading: ValueError: no message"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "[Errno 20] Cannot create directory '/wh/shop/o/data/email=alice%40x.org': Not a directory",
            "[Errno 20] Cannot create directory '/wh/shop/o/data/email=…': Not a directory",
        ),
        (
            "s3://lake/o/data/day=2026-01-01/a%3Db=x%2Fy/00000-0.parquet",
            "s3://lake/o/data/day=…/a%3Db=…/00000-0.parquet",
        ),
        ("key 'email=alice/00000-0.parquet' in bucket 'lake'", "key 'email=…/00000-0.parquet' in bucket 'lake'"),
        ("set write.object-storage.enabled=true, or n = 1/2", "set write.object-storage.enabled=true, or n = 1/2"),
        ("GET https://catalog:8181/v1/config?warehouse=lake", "GET https://catalog:8181/v1/config?warehouse=lake"),
    ],
)
def test_folders_of_partitions_are_shown_without_their_values(message: str, expected: str) -> None:
    """Partition values are content of records; names of files and folders around them stay."""
    assert without_values(message) == expected


@pytest.mark.parametrize("reading", [translated, reading_tables])
@pytest.mark.parametrize("error", [FileNotFoundError, NotADirectoryError, PermissionError, pa.ArrowInvalid])
def test_errors_about_data_files_quote_no_value_of_a_partition(
    reading: Callable[[str], AbstractContextManager[None]], error: type[Exception]
) -> None:
    """Of the write path and of verify: what they say goes into logs, variables, mails and Slack."""
    with pytest.raises(FrazilError, match="email=…") as raised, reading("reading table shop.orders"):
        raise error("/wh/shop/orders/data/email=alice-4711/00000-0.parquet")

    assert "alice" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("reading", [translated, reading_tables])
def test_refusal_of_the_storage_is_not_tried_again(reading: Callable[[str], AbstractContextManager[None]]) -> None:
    """S3 says so of a key that is not there, too, to whoever may not list the bucket."""
    with pytest.raises(Terminal), reading("reading a file"):
        raise OSError("When getting information for key 'a': AWS Error ACCESS_DENIED during HeadObject operation: no")


@pytest.mark.parametrize(
    ("store", "until_ms"), [("ExpiredToken", None), ("AWS Error INVALID_ACCESS_KEY_ID during PutObject operation", 1)]
)
def test_keys_that_ended_are_named(store: str, until_ms: int | None) -> None:
    """Lent by a catalog, for less time than a batch takes: a retry alone may never help, so the next step says what does."""
    with (
        pytest.raises(Retryable, match="temporary credentials expired") as raised,
        translated("writing a file", until_ms),
    ):
        raise OSError(f"{store}: no")

    assert "limits.max_records" in str(raised.value.next_step)
    with pytest.raises(Terminal), translated("writing a file", 2**42):
        raise OSError("AWS Error INVALID_ACCESS_KEY_ID during PutObject operation: no")


def test_long_text_with_many_brackets_is_searched_in_linear_time() -> None:
    """A producer may have written it: an error of Spark or Python quotes a value of a megabyte."""
    text = "(a=" * 300_000
    began = process_time()
    assert without_values(text) == text
    assert process_time() - began < 5
