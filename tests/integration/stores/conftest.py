"""The shop in an S3 bucket, by way of a proxy that can be told to misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyarrow.fs import FileSelector, FileType

from frazil.project import SETTINGS_VARIABLE, Project
from tests.fault_proxy import FaultProxy, fault_proxy
from tests.integration.conftest import environment
from tests.s3_server import BUCKET, S3Server


@dataclass(frozen=True)
class S3Shop:
    """A shop whose every request to S3 goes through the proxy; and a straight way to look at what is there."""

    shop: Any
    proxy: FaultProxy
    server: S3Server
    prefix: str

    def objects(self) -> set[str]:
        """Keys of all objects of the warehouse."""
        file_infos = self.server.files().get_file_info(FileSelector(f"{BUCKET}/{self.prefix}", recursive=True))
        return {file_info.path for file_info in file_infos if file_info.type == FileType.File}


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[FaultProxy]:
    """A proxy before the S3 server."""
    with fault_proxy(s3.port) as proxy:
        yield proxy


@pytest.fixture
def s3_shop(shop: Callable[..., Any], s3: S3Server, proxy: FaultProxy, tmp_path: Path) -> Callable[..., S3Shop]:
    """Make a shop in S3 whose catalog is an SQLite file: `s3_shop(partitions=1)`, `properties` are the store's."""

    def make(properties: Mapping[str, str] | None = None, **options: Any) -> S3Shop:
        new_shop, prefix = shop(**options), f"warehouse-{uuid4().hex[:8]}"
        lake = {
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"s3://{BUCKET}/{prefix}",
            "properties": s3.properties(int(proxy.uri.rpartition(":")[2])) | dict(properties or {}),
        }
        settings = tmp_path / "settings.yaml"
        clusters = {"local": {"bootstrap_servers": "${local:kafka}"}}
        settings.write_text(json.dumps({"clusters": clusters, "catalogs": {"lake": lake}}))
        project = Project.load(environment(new_shop.project) | {SETTINGS_VARIABLE: str(settings)})
        return S3Shop(replace(new_shop, project=project), proxy, s3, prefix)

    return make
