"""PyIceberg's file-io over PyArrow, adapted to object stores: reads small files in one request, and retries slow or refused
requests.

Rests on private names of PyIceberg 0.12 and on how PyArrow's file systems tell their options; a contract test pins them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem
from pyiceberg.io import (
    PY_IO_IMPL,
    S3_CONNECT_TIMEOUT,
    S3_REQUEST_TIMEOUT,
    S3_RETRY_STRATEGY_IMPL,
    FileIO,
    load_file_io,
)
from pyiceberg.io.pyarrow import PyArrowFileIO

S3_ATTEMPTS: Final = 6
"""As often as Iceberg's Java side asks S3 (`s3.retry.num-retries`: 5 more): PyArrow's three are over within a second, and a
prefix that grows says SlowDown for longer."""

CONNECT_SECONDS: Final = 10.0
"""How long a connection to S3 may take to open, unless `s3.connect-timeout` says otherwise; PyArrow: 1 s."""

ANSWER_SECONDS: Final = 60.0
"""The same for each next part of an answer, and `s3.request-timeout`; PyArrow: 3 s, which a busy store takes."""

_LOADED: Final = "Loaded FileIO: %s"
logging.getLogger("pyiceberg.io").addFilter(
    lambda record: record.msg != _LOADED
)  # for each table, in every log of a task

_LENT_UNTIL: Final = ("s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at")

_AZURE: Final = ("abfs", "abfss", "wasb", "wasbs")
_ACCOUNT: Final = "adls.account-name"


class StorageFileIO(PyArrowFileIO):
    """The file-io of every catalog, unless its settings name another with `py-io-impl`."""

    @staticmethod
    def parse_location(location: str, properties: Mapping[str, str] | None = None) -> tuple[str, str, str]:
        """Scheme, host and path of a location; of Azure `container@account…/path` the path begins with the container.

        Spark knows no other form than that one, and PyArrow takes all of it for the container's name.
        """
        scheme, netloc, path = PyArrowFileIO.parse_location(location, dict(properties or {}))
        if scheme in _AZURE and "@" in netloc:
            container, _, host = netloc.partition("@")
            return scheme, host, f"{container}{path.removeprefix(netloc)}"
        return scheme, netloc, path

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> FileSystem:
        if scheme in _AZURE and netloc and "." in netloc and _ACCOUNT not in self.properties:
            named = StorageFileIO({**self.properties, _ACCOUNT: netloc.partition(".")[0]})
            return named._initialize_azure_fs()
        return super()._initialize_fs(scheme, netloc)

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        limits = {S3_CONNECT_TIMEOUT: str(CONNECT_SECONDS), S3_REQUEST_TIMEOUT: str(ANSWER_SECONDS)}
        patient = PyArrowFileIO({**limits, **self.properties})
        files = patient._initialize_s3_fs(netloc)
        if S3_RETRY_STRATEGY_IMPL in self.properties:
            return files  # PyArrow does not tell which it is, so the file system can't be made anew with it
        _, (options,) = files.__reduce__()
        strategy = AwsStandardS3RetryStrategy(max_attempts=S3_ATTEMPTS)
        # Small files, all but some data files, go up in one request instead of three.
        return type(files)(**{**options, "retry_strategy": strategy, "allow_delayed_open": True})


def with_storage(properties: Mapping[str, str]) -> dict[str, str]:
    """Properties of a catalog or of its file-io, with `StorageFileIO` as the file-io unless they name another one."""
    return {PY_IO_IMPL: f"{StorageFileIO.__module__}.{StorageFileIO.__name__}", **properties}


def opened_storage(properties: Mapping[str, str], location: str | None = None) -> FileIO:
    """The file-io that the properties select."""
    return load_file_io(with_storage(properties), location)


def credentials_expire_ms(properties: Mapping[str, str]) -> int | None:
    """When the vended credentials of a table's storage expire, in milliseconds since 1970; None if never, or if unknown."""
    ends = [str(properties.get(name, "")) for name in _LENT_UNTIL]
    return min((int(end) for end in ends if end.isdecimal()), default=None)
