"""The file-io of every catalog: small files in one request, patience, and addresses that Spark has too."""

from __future__ import annotations

import pickle

import pytest
from pyarrow.fs import AzureFileSystem, FileSystem, GcsFileSystem, S3FileSystem
from pyiceberg.io.fsspec import FsspecFileIO

from frazil.iceberg.patches.files import ANSWER_SECONDS, CONNECT_SECONDS, StorageFileIO, opened_storage

S3 = {"s3.endpoint": "http://127.0.0.1:1", "s3.region": "here", "s3.access-key-id": "a", "s3.secret-access-key": "b"}
AZURE_KEY = "aGVsbG8="


def options(files: FileSystem) -> dict[str, object]:
    """Options of a file system, as it tells them to who pickles it."""
    return dict(files.__reduce__()[1][0])


def test_small_file_takes_one_request() -> None:
    """An upload is begun when there is more than one part of it; limits are ours unless the settings have some."""
    s3_options = options(StorageFileIO(S3).fs_by_scheme("s3", "lake"))

    assert s3_options["allow_delayed_open"]
    assert (s3_options["connect_timeout"], s3_options["request_timeout"]) == (CONNECT_SECONDS, ANSWER_SECONDS)
    assert (s3_options["endpoint_override"], s3_options["region"], s3_options["secret_key"]) == (
        "http://127.0.0.1:1",
        "here",
        "b",
    )
    limited = options(StorageFileIO({**S3, "s3.request-timeout": "5"}).fs_by_scheme("s3", "lake"))
    assert limited["request_timeout"] == 5.0


def test_custom_retry_strategy_is_kept() -> None:
    """Who names one has PyIceberg's file system as it is."""
    named = {**S3, "s3.retry-strategy-impl": "pyarrow.fs.AwsDefaultS3RetryStrategy"}

    assert not options(StorageFileIO(named).fs_by_scheme("s3", "lake"))["allow_delayed_open"]


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "wasb", "wasbs"])
def test_azure_container_is_read_from_its_address(scheme: str) -> None:
    """An address as Spark has it: the container is what stands before the @, the account begins the host."""
    io = StorageFileIO({"adls.account-key": AZURE_KEY})

    file = io.new_output(f"{scheme}://lake@acme.dfs.core.windows.net/warehouse/x.parquet")

    assert isinstance(file._filesystem, AzureFileSystem)
    assert (file._path, options(file._filesystem)["account_name"]) == ("lake/warehouse/x.parquet", "acme")
    plain = StorageFileIO({"adls.account-key": AZURE_KEY, "adls.account-name": "acme"})
    assert plain.new_output(f"{scheme}://lake/x")._path == "lake/x"


def test_gcs_is_opened() -> None:
    """By the properties that Iceberg's Java side has too."""
    files = StorageFileIO({"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "9999999999999"})

    assert isinstance(files.new_output("gs://lake/x")._filesystem, GcsFileSystem)


def test_tasks_use_the_file_io_of_the_driver() -> None:
    """It travels to tasks, and one that the settings name is used in its place."""
    io = pickle.loads(pickle.dumps(opened_storage(S3)))  # noqa: S301

    assert isinstance(io, StorageFileIO)
    assert isinstance(io.fs_by_scheme("s3a", "lake"), S3FileSystem)
    assert isinstance(opened_storage({"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"}), FsspecFileIO)
