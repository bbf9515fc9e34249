"""Sets up the object store: `object_store.py users FOLDER` before it starts, `object_store.py bucket HOST:PORT BUCKET` afterwards.

The store has three logins. Only its own process knows that of its administrator. The writer owns the bucket; the reader may list
and read it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from urllib.request import Request, urlopen

from pyarrow.fs import S3FileSystem

REGION = "us-east-1"
PATIENCE_SECONDS = 30


def users(env: Mapping[str, str], folder: str) -> None:
    """Write the file that the server reads its users from. A server without capabilities must be able to read it."""
    roles = {"WRITER": "userplus", "READER": "user"}  # the first may make buckets
    accounts = {env[f"S3_{name}_ACCESS_KEY"]: (env[f"S3_{name}_SECRET_KEY"], role) for name, role in roles.items()}
    users = {key: {"access": key, "secret": secret, "role": role} for key, (secret, role) in accounts.items()}
    file = Path(folder) / "users.json"
    file.write_text(json.dumps({"accessAccounts": users}), encoding="utf-8")
    file.chmod(0o644)
    print(f"{len(users)} users are in {file}")


def bucket(env: Mapping[str, str], endpoint: str, name: str) -> None:
    """Make the bucket as the writer, unless it is there, and let the reader list and read it."""
    writer, secret, reader = (
        env[f"S3_{role}"] for role in ("WRITER_ACCESS_KEY", "WRITER_SECRET_KEY", "READER_ACCESS_KEY")
    )
    files = S3FileSystem(
        access_key=writer,
        secret_key=secret,
        endpoint_override=endpoint,
        scheme="http",
        region=REGION,
        allow_bucket_creation=True,
    )
    files.create_dir(name)
    # A bucket with a policy lets its owner do what the policy says, too.
    allowed = (
        (writer, "s3:*", ""),
        (writer, "s3:*", "/*"),
        (reader, "s3:ListBucket", ""),
        (reader, "s3:GetObject", "/*"),
    )
    statements = [
        {"Effect": "Allow", "Principal": {"AWS": [user]}, "Action": action, "Resource": f"arn:aws:s3:::{name}{path}"}
        for user, action, path in allowed
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements}).encode()
    with urlopen(_signed(endpoint, name, policy, writer, secret), timeout=PATIENCE_SECONDS):  # noqa: S310 - the stack's own
        print(f"bucket {name} is there, and has its policy")


def _signed(endpoint: str, name: str, policy: bytes, key: str, secret: str) -> Request:
    """The request that sets a bucket's policy, signed as AWS Signature Version 4 has it."""
    now = datetime.now(UTC)
    day, body = f"{now:%Y%m%d}", hashlib.sha256(policy).hexdigest()
    headers = {"host": endpoint, "x-amz-content-sha256": body, "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}"}
    names = ";".join(headers)
    lines = "".join(f"{header}:{value}\n" for header, value in headers.items())
    request = hashlib.sha256(f"PUT\n/{name}\npolicy=\n{lines}\n{names}\n{body}".encode()).hexdigest()
    scope = (day, REGION, "s3", "aws4_request")
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{'/'.join(scope)}\n{request}"
    signature = reduce(_hmac, (*scope, text), f"AWS4{secret}".encode()).hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{'/'.join(scope)}, SignedHeaders={names}, Signature={signature}"
    )
    return Request(f"http://{endpoint}/{name}?policy=", policy, headers, method="PUT")


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


if __name__ == "__main__":
    if sys.argv[1] == "users":
        users(os.environ, *sys.argv[2:])
    else:
        bucket(os.environ, *sys.argv[2:])
