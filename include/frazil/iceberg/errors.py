"""Maps exceptions of PyIceberg, its catalogs and its file systems to Frazil's errors. No other module does."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
    UnauthorizedError,
    ValidationException,
)

from frazil.error_codes import (
    CATALOG_REFUSED,
    CATALOG_UNREACHABLE,
    CLOCK_WRONG,
    COMMIT_UNKNOWN,
    PROGRAM_MISSING,
    TABLE_MISSING,
    TABLE_UNFIT,
)
from frazil.errors import ErrorCode, FrazilError, OutcomeUnknown, Retryable, Terminal, safe_cause, without_values

_FOREIGN = (
    CommitFailedException,
    ImportError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
    NotImplementedError,
    OSError,
    RESTError,
    ValidationException,
    ValidationError,
    ValueError,
    pa.ArrowException,
)
"""What an operation on a table may raise, besides the errors of catalogs' libraries (`_LIBRARY_ERRORS`). RESTError: the root of all
errors that a REST catalog answers. OSError: also a broken connection, and an answer that is late. ValueError: PyIceberg's for
unexpected states."""

_REFUSED = (
    UnauthorizedError,
    ForbiddenError,
    AuthorizationExpiredError,
    OAuthError,
    BadRequestError,
    NotInstalledError,
)
_ECHOING = tuple(
    f"requests.exceptions.{name}" for name in ("InvalidHeader", "InvalidSchema", "InvalidURL", "MissingSchema")
)
"""Errors before anything is sent. Their messages repeat the address or the header, which may hold a secret."""

_HIVE = ("thrift.Thrift.TException",)
_HIVE_REFUSED = ("hive_metastore.ttypes.InvalidObjectException", "hive_metastore.ttypes.InvalidOperationException")
_GLUE = ("botocore.exceptions.BotoCoreError", "botocore.exceptions.ClientError")
_GLUE_REFUSED = (
    *(
        f"({name}"
        for name in ("AccessDenied", "Entity", "InvalidInput", "InvalidSignature", "UnrecognizedClient", "Resource")
    ),
    "Unable to locate credentials",
    "You must specify a region",
)
"""Texts in errors of Glue and of its client that another try would bring again."""

_UNAVAILABLE = (
    ServiceUnavailableError,
    TooManyRequestsError,
    ServerError,
    CommitFailedException,
    OSError,
)

_STORAGE_REFUSED = tuple(
    f"AWS Error {name} "
    for name in (
        "ACCESS_DENIED",
        "INVALID_ACCESS_KEY_ID",
        "INVALID_SIGNATURE",
        "MISSING_AUTHENTICATION_TOKEN",
        "NO_SUCH_BUCKET",
        "SIGNATURE_DOES_NOT_MATCH",
    )
)
"""Texts in PyArrow's errors for refusals of S3 that another try would bring again: PyArrow has no exceptions for them. An expired
token is not among them, since the next try gets a new one."""

_LIBRARY_ERRORS = ("sqlalchemy.exc.SQLAlchemyError", *_HIVE, *_GLUE)


def foreign_errors() -> tuple[type[Exception], ...]:
    """Exception classes that an operation on a table may raise, for an `except`."""
    return (*_FOREIGN, *_loaded(_LIBRARY_ERRORS))


def _loaded(names: Iterable[str]) -> Iterator[type[Exception]]:
    """Exception classes of libraries that are already imported: others can't be raised, and importing them costs 0.1 CPU seconds."""
    for name in names:
        module, _, kind = name.rpartition(".")
        exception = getattr(sys.modules.get(module), kind, None)
        if exception is not None:
            yield exception


@contextmanager
def translated(doing: str, credentials_end_ms: int | None = None) -> Iterator[None]:
    """Run a block; its foreign errors become Retryable, Terminal or OutcomeUnknown. `doing` begins their messages.

    A storage refuses expired credentials with the same error as wrong ones; `credentials_end_ms` tells them apart.
    """
    try:
        yield
    except FrazilError:
        raise
    except foreign_errors() as error:
        if isinstance(error, OSError) and credentials_end_ms is not None and credentials_end_ms < time.time() * 1000:
            raise _CREDENTIALS_EXPIRED.as_error(doing, error_line(error)) from safe_cause(error)
        raise as_frazil(error, doing) from safe_cause(error)


def error_line(error: BaseException) -> str:
    """An error in one line, without secrets and values of records."""
    message = "" if isinstance(error, tuple(_loaded(_ECHOING))) else str(error)
    return f"{type(error).__name__}: {without_values(message.splitlines()[0]) if message else 'no message'}"


def as_frazil(error: BaseException, doing: str) -> FrazilError:
    """The Frazil error for a foreign one."""
    cause = error_line(error)
    if isinstance(error, CommitStateUnknownException):
        return OutcomeUnknown(
            f"{doing}: the catalog's answer does not show whether the commit landed ({cause})", code=COMMIT_UNKNOWN
        )
    for meaning in _MEANINGS:
        if meaning.fits(error):
            return meaning.as_error(doing, cause)
    return CATALOG_REFUSED.terminal(f"{doing}: {cause}")


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The Frazil error for some foreign errors.

    Attributes:
        fragments: Texts of which the foreign error has one.
        library_exceptions: Further exceptions, by full name: their libraries may not be imported.
    """

    kind: type[Retryable | Terminal]
    exceptions: tuple[type[Exception], ...]
    what: str
    next_step: str | None = None
    errno: int | None = None
    code: ErrorCode = CATALOG_REFUSED
    fragments: tuple[str, ...] = ("",)
    library_exceptions: tuple[str, ...] = ()

    def as_error(self, doing: str, cause: str) -> Retryable | Terminal:
        """The Frazil error; `doing` and `cause` are for its message."""
        return self.kind(f"{doing}: {self.what} ({cause})", code=self.code, next_step=self.next_step)

    def fits(self, error: BaseException) -> bool:
        return (
            isinstance(error, (*self.exceptions, *_loaded(self.library_exceptions)))
            and self.errno in (None, getattr(error, "errno", None))
            and any(fragment in str(error) for fragment in self.fragments)
        )


_CREDENTIALS_EXPIRED = _Meaning(
    Retryable,
    (OSError,),
    "the storage's temporary credentials expired during the work",
    "the next try gets new ones. If this happens again, let the catalog issue credentials for longer, or make batches smaller:"
    " limits.max_records, limits.max_bytes",
    fragments=("ExpiredToken",),
    code=CATALOG_UNREACHABLE,
)

_MEANINGS = (
    _Meaning(
        Terminal,
        (NoSuchTableError,),
        "there is no such table in the catalog",
        "frazil history PIPELINE shows what was written where",
        code=TABLE_MISSING,
    ),
    _Meaning(
        Terminal,
        (FileNotFoundError,),
        "a file that is still needed is missing",
        "restore it from a backup of the storage; it may have been deleted by hand or by an orphan removal",
        code=TABLE_MISSING,
    ),
    _Meaning(
        Terminal,
        (OSError,),
        "a partition value is too long for a file name",
        "set table property write.object-storage.enabled=true, or partition by truncate(N, column)",
        errno.ENAMETOOLONG,
        TABLE_UNFIT,
    ),
    _Meaning(
        Terminal,
        (ImportError,),
        "a Python package is missing",
        "install the driver that the catalog's uri or the warehouse needs",
        code=PROGRAM_MISSING,
    ),
    _Meaning(
        Terminal,
        (OSError,),
        "the storage refused",
        "check keys, bucket and region among the properties of the catalog's entry in the settings file, and what its user may do;"
        " a store of managed tables may take only Iceberg's files (frazil.file-suffix in docs/catalogs.md)",
        fragments=_STORAGE_REFUSED,
    ),
    _Meaning(Terminal, (PermissionError,), "permission denied", "give this user write access to the warehouse"),
    _Meaning(
        Terminal,
        (),
        "the catalog's address or one of its headers can't be used",
        "check uri and properties of the catalog's entry in the settings file",
        library_exceptions=_ECHOING,
    ),
    _Meaning(
        Retryable,
        (BadRequestError,),
        "a clock is wrong: the server's is more than a minute behind this commit or the table's last one",
        "set the clock that is wrong, of the server, of this host or of the host that committed last; the message has both times in"
        " milliseconds since 1970. Runs continue by themselves once the clocks agree",
        code=CLOCK_WRONG,
        fragments=("Invalid update timestamp", "Invalid snapshot timestamp", "Expected sorted"),
    ),
    _Meaning(Terminal, _REFUSED, "the catalog refused", "check the catalog's entry in the settings file"),
    _Meaning(
        Terminal,
        (),
        "the catalog refused",
        "check the catalog's entry in the settings file",
        library_exceptions=_HIVE_REFUSED,
    ),
    _Meaning(
        Terminal,
        (),
        "the catalog refused",
        "check region and keys of the catalog's entry in the settings file, and what its user may do",
        fragments=_GLUE_REFUSED,
        library_exceptions=_GLUE,
    ),
    _CREDENTIALS_EXPIRED,
    _Meaning(
        Retryable,
        _UNAVAILABLE,
        "the catalog or the storage is not available now",
        code=CATALOG_UNREACHABLE,
        library_exceptions=("sqlalchemy.exc.DBAPIError", *_HIVE, *_GLUE),
    ),
    _Meaning(
        Terminal,
        (RESTError, ValidationError),
        "the answer is not from a catalog's API",
        "check the uri in the settings file: it must be the root of an Iceberg REST catalog",
    ),
)
"""The first that fits counts: special cases stand before the general ones."""
