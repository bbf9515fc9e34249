"""Makes a bucket of the object store unless it is there: `make_bucket.py HOST:PORT BUCKET`."""

from __future__ import annotations

import os
import sys

from pyarrow.fs import S3FileSystem


def main(endpoint: str, bucket: str) -> None:
    """Make it, with the login of the environment."""
    files = S3FileSystem(
        access_key=os.environ["FRAZIL_S3_ACCESS_KEY"],
        secret_key=os.environ["FRAZIL_S3_SECRET_KEY"],
        endpoint_override=endpoint,
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    files.create_dir(bucket)
    print(f"bucket {bucket} is there")


if __name__ == "__main__":
    main(*sys.argv[1:])
