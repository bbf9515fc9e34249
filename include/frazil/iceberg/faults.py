"""Maps what PyIceberg, its SQL catalog and its file system raise to Frazil's errors. Once, here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    ServerError,
    ServiceUnavailableError,
    UnauthorizedError,
    ValidationException,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from frazil.errors import FrazilError, OutcomeUnknown, Retryable, Terminal

FOREIGN = (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OSError,
    SQLAlchemyError,
    ServerError,
    ValidationException,
    ValidationError,
    ValueError,
    pa.ArrowException,
)
"""What an operation on a table is known to raise. ValueError: PyIceberg uses it for states it does not expect."""

_REFUSED = (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, BadRequestError, NotInstalledError)
_UNAVAILABLE = (ServiceUnavailableError, ServerError, CommitFailedException, DBAPIError, OSError)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Run a block; what it raises becomes Retryable, Terminal or OutcomeUnknown, with `doing` as its coordinates."""
    try:
        yield
    except FrazilError:
        raise
    except FOREIGN as error:
        raise as_frazil(error, doing) from error


def as_frazil(error: BaseException, doing: str) -> FrazilError:
    """The Frazil error for a foreign one."""
    found = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    if isinstance(error, CommitStateUnknownException):
        return OutcomeUnknown(f"{doing}: the catalog did not say whether the commit landed ({found})")
    if isinstance(error, NoSuchTableError):
        return Terminal(
            f"{doing}: there is no such table in the catalog ({found})",
            next_step="frazil history PIPELINE shows what was written where",
        )
    if isinstance(error, PermissionError):
        return Terminal(
            f"{doing}: permission denied ({found})", next_step="give this user write access to the warehouse"
        )
    if isinstance(error, _REFUSED):
        return Terminal(
            f"{doing}: the catalog refused ({found})", next_step="check the catalog's entry in the settings file"
        )
    if isinstance(error, _UNAVAILABLE):
        return Retryable(f"{doing}: the catalog or the storage is not available now ({found})")
    return Terminal(f"{doing}: {found}")
