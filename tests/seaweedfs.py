"""SeaweedFS on the loopback interface, for tests: a REST catalog with logins, signed requests and keys that it lends, and its store."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from frazil.devstack.object_store import go
from frazil.errors import FrazilError
from frazil.pipeline.settings.catalogs import CatalogSettings
from frazil.project import catalog_of
from frazil.runtime.home import LOOPBACK, Home, answers, exclusive, inherited_environment, serves
from frazil.runtime.process import Processes, Spec, until

VERSION: Final = "v0.0.0-20261109003541-7506e5f91cd6"
BUCKET: Final = "lake"
REGION: Final = "us-east-1"
ACCESS_KEY, SECRET_KEY = "frazil-tests", "s3cret-of-the-tests"

PORTS: Final = ("master", "volume", "filer", "s3", "admin")
"""Parts with a port for HTTP and one for gRPC; the catalog has one port beside."""

_NAME, _BUILD_SECONDS, _START_SECONDS, _GRACE_SECONDS = "seaweedfs", 3600, 120.0, 15.0
_ROLE: Final = "arn:aws:iam::role/lender"

_MODULE: Final = f"""module example.org/seaweedfs

go 1.26

require github.com/seaweedfs/seaweedfs {VERSION}

// As in its own go.mod, since `go install` takes no program whose module replaces others.
replace github.com/tyler-smith/go-bip39 => github.com/cosmos/go-bip39 v1.0.0
"""


@dataclass(frozen=True, slots=True)
class SeaweedFS:
    """A server that answers, with one warehouse.

    Attributes:
        port: Of the catalog.
        s3_port: Of the store.
    """

    port: int
    s3_port: int

    def has_warehouse(self) -> bool:
        """Whether the warehouse is there: it is made once the server answers."""
        try:
            catalog_of("lake", CatalogSettings(**self.entry("sigv4"))).tables()
        except FrazilError:
            return False
        return True

    def entry(self, login: str, port: int | None = None) -> dict[str, Any]:
        """Its entry of a settings file, straight or by way of another port: `oauth2` lends keys of the store, `sigv4` signs."""
        uri = f"http://{LOOPBACK}:{port or self.port}"
        properties = {
            "oauth2": {"credential": f"{ACCESS_KEY}:{SECRET_KEY}", "oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
            | {"header.X-Iceberg-Access-Delegation": "vended-credentials", "s3.region": REGION},
            "sigv4": {"rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": REGION}
            | {"client.access-key-id": ACCESS_KEY, "client.secret-access-key": SECRET_KEY, "client.region": REGION}
            | {"header.X-Iceberg-Access-Delegation": "none", "s3.endpoint": f"http://{LOOPBACK}:{self.s3_port}"},
        }[login]
        suffix = {"frazil.file-suffix": ".stats"}  # its store takes no other files beside Iceberg's
        return {"type": "rest", "uri": uri, "warehouse": BUCKET, "properties": properties | suffix}


def program(home: Home) -> Path | None:
    """The program: the pinned version, built by Go once, beside the jars; None where there is no such Go."""
    built, command = home.jars / "tools" / f"{_NAME}-{VERSION}", go()
    if built.is_file() or command is None:
        return built if built.is_file() else None
    with exclusive(home.jars / f".{_NAME}.lock", lambda: None):
        folder = built.parent / f".{_NAME}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "go.mod").write_text(_MODULE)
        arguments = ["build", "-mod=mod", "-ldflags", "-s -w", "-o", _NAME, "github.com/seaweedfs/seaweedfs/weed"]
        subprocess.run([command, *arguments], cwd=folder, check=True, timeout=_BUILD_SECONDS)
        (folder / _NAME).replace(built)
    return built


@contextmanager
def seaweedfs(
    built: Path, root: Path, ports: list[int], lifetime: str = "1h", token_seconds: int = 3600
) -> Iterator[SeaweedFS]:
    """Start the server in a folder of its own, wait until it answers, stop it in the end.

    Args:
        built: The program.
        root: The folder.
        ports: Two for each of `PORTS`, and one.
        lifetime: How long keys of the store are lent for.
        token_seconds: How long a token of the catalog lasts.
    """
    config, catalog = root / "iam.json", ports[-1]
    config.write_text(json.dumps(_access(lifetime)))
    served = {part: ports[2 * n : 2 * n + 2] for n, part in enumerate(PORTS)}
    flags = [
        f"-{part}.port{suffix}={port}"
        for part, pair in served.items()
        for suffix, port in zip(("", ".grpc"), pair, strict=True)
    ]
    flags += [
        f"-s3.port.iceberg={catalog}",
        f"-s3.config={config}",
        f"-s3.iam.config={config}",
        f"-s3.iceberg.credentialRole={_ROLE}",
    ]
    flags += [
        f"-s3.externalUrl=http://{LOOPBACK}:{served['s3'][0]}",
        "-s3.iceberg.credentialDurationSeconds=0",
        f"-tableBucket={BUCKET}",
    ]
    flags += [
        "-s3.port.lance=0",
        "-webdav=false",
        "-admin.ui=false",
        "-admin.port.legacy=0",
        "-master.telemetry=false",
        "-volume.max=64",
    ]
    command = [str(built), "mini", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", f"-dir={root}", *flags]
    env = {name: value for name, value in inherited_environment().items() if not name.startswith("AWS_")}
    env |= {"ICEBERG_OAUTH_TOKEN_EXPIRY": str(token_seconds), "HOME": str(root), "GOMEMLIMIT": "512MiB"}
    processes = Processes(root / "run", root / "logs", root)
    try:
        processes.start(Spec(_NAME, command, env, f"http://{LOOPBACK}:{catalog}", _GRACE_SECONDS))
        processes.wait_ready(
            _NAME, _NAME, lambda: serves(catalog, "/v1/config") and answers(served["s3"][0]), _START_SECONDS
        )
        server = SeaweedFS(catalog, served["s3"][0])
        assert until(server.has_warehouse, _START_SECONDS)
        yield server
    finally:
        processes.stop((_NAME, _GRACE_SECONDS))


def _access(lifetime: str) -> dict[str, Any]:
    """One login that may do everything, and the role whose keys are lent."""
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    catalog_itself = {
        "Effect": "Allow",
        "Principal": {"Federated": "iceberg-catalog"},
        "Action": "sts:AssumeRoleWithCredentials",
    }
    version = {"Version": "2012-10-17"}
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    return {
        "identities": [
            {"name": "frazil", "credentials": [keys], "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
        ],
        "sts": {
            "tokenDuration": lifetime,
            "maxSessionLength": "12h",
            "issuer": "tests",
            "signingKey": "c2lnbmluZy1rZXktb2YtdGhlLXRlc3Rz",
        },
        "roles": [
            {
                "roleName": "lender",
                "roleArn": _ROLE,
                "trustPolicy": version | {"Statement": [catalog_itself]},
                "attachedPolicies": ["all"],
            }
        ],
        "policies": [{"name": "all", "document": version | {"Statement": [everything]}}],
    }
