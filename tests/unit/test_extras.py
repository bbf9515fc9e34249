"""The core runs without the libraries of the extras, and what needs one says which extra to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from frazil.extras import EXTRAS

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

ROOMS = {
    "airflow": ("frazil.cli.demo.", "frazil.runtime.airflow_api"),
    "avro": ("frazil.kafka.read.control_topic", "frazil.records.formats.avro.", "frazil.verify.values.avro"),
    "devstack": ("frazil.devstack.certificates",),
    "json-schema": ("frazil.records.formats.json_schema.",),
    "protobuf": ("frazil.records.formats.protobuf.", "frazil.verify.values.protobuf"),
    "registry": ("frazil.registry.",),
    "spark": ("frazil.spark.",),
    "glue": ("frazil.iceberg.catalog.glue",),
    "hive": ("frazil.iceberg.catalog.hive",),
    "sqlite": ("frazil.iceberg.catalog.sql",),
}
"""Modules that may import an extra's libraries at the top: nobody imports them but who asked for the extra."""

PROBE = """
import json, pkgutil, sys
from importlib import import_module

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else self.finder.find_spec(name, path, target)

BLOCKED = set(sys.argv[1].split())
sys.meta_path[:] = map(Without, sys.meta_path)
import frazil
unusable = {}
for module in pkgutil.walk_packages(frazil.__path__, "frazil."):
    if not module.name.endswith("__main__"):
        try:
            import_module(module.name)
        except ModuleNotFoundError as error:
            unusable[module.name] = error.name

from frazil.errors import Terminal
from frazil.extras import EXTRAS, require
from frazil.iceberg.catalog.catalog import Lake
from frazil.kafka_properties import msk_iam
from frazil.records.formats.catalogue import FORMATS, open_format
from frazil.records.transforms.sql.engine import connection
from frazil.runtime.airflow_login import any_api
from frazil.runtime.home import Home
from frazil.runtime.java import ivy_jar
from frazil.verify.kafka import Registries
from frazil.verify.values.formats import _reader_maker

doors = {
    "airflow": lambda: any_api(Home.resolve()),
    "avro": lambda: open_format(FORMATS["avro"]("avro", schema="{}")),
    "devstack": lambda: require("devstack", "the production profile"),
    "glue": lambda: Lake("lake", "", "s3://lake", {}, kind="glue")._open(),
    "hive": lambda: Lake("lake", "thrift://h:9083", "s3://lake", {}, kind="hive")._open(),
    "json-schema": lambda: open_format(FORMATS["json-schema"]("json-schema", schema="{}")),
    "msk": lambda: msk_iam(""),
    "postgres": lambda: Lake("lake", "postgresql+psycopg2://h/lake", None, {})._open(),
    "protobuf": lambda: _reader_maker("protobuf", truncates=False),
    "registry": lambda: Registries({"main": None})("main"),
    "spark": ivy_jar,
    "sql": connection,
    "sqlite": lambda: Lake("lake", "sqlite:///c.db", None, {})._open(),
}
assert doors.keys() == EXTRAS.keys()
said = {}
for extra, door in doors.items():
    try:
        door()
    except Terminal as error:
        said[extra] = [str(error.code), error.message, error.next_step]
print(json.dumps({"unusable": unusable, "said": said}))
"""


@pytest.fixture(scope="module")
def lean() -> dict[str, Any]:
    """What a process says that has no library of any extra."""
    blocked = {library.partition(".")[0] for libraries in EXTRAS.values() for library in libraries} | {"httpx2", "grpc"}
    command = [sys.executable, "-c", PROBE, " ".join(sorted(blocked))]
    env = os.environ | {"PYTHONPATH": str(ROOT / "include")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_core_imports_without_the_libraries_of_extras(lean: dict[str, Any]) -> None:
    """One import at the top of a module that everybody loads, and nobody can leave the library out."""
    blocked = {
        extra: {library.partition(".")[0] for library in libraries} | ({"httpx2"} if extra == "registry" else set())
        for extra, libraries in EXTRAS.items()
    }
    elsewhere = {
        module: library
        for module, library in lean["unusable"].items()
        if not any(
            module.startswith(rooms) and library.partition(".")[0] in blocked[extra] for extra, rooms in ROOMS.items()
        )
    }

    assert elsewhere == {}
    assert len(lean["unusable"]) > 20


@pytest.mark.parametrize("extra", EXTRAS)
def test_who_needs_a_missing_library_names_its_extra(extra: str, lean: dict[str, Any]) -> None:
    """With the command that installs it, which works as it stands."""
    code, message, next_step = lean["said"][extra]

    assert (code, next_step) == ("FRZ-108", f"pip install 'frazil[{extra}]'")
    assert "installed" in message


def test_every_extra_of_the_package_is_known() -> None:
    """`dev` is what tests need."""
    assert DEPENDENCIES.keys() - {"dev"} == EXTRAS.keys()
