"""Whoever may alter a table runs no code here, and gets no credentials of the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.locations import SimpleLocationProvider

from frazil.errors import Terminal
from frazil.iceberg.catalog.catalog import Lake
from frazil.iceberg.catalog.rest import BoundedRestCatalog
from frazil.iceberg.catalog.table import metadata_path, read_text, staging_table, write_text
from frazil.iceberg.files.data_files import DataFileWriter
from frazil.iceberg.patches.files import StorageFileIO
from frazil.iceberg.schema.schema import declared_schema
from frazil.pipeline.files.folder import is_rules_file, rules_file
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.catalogs import CatalogSettings, refused_properties
from frazil.pipeline.settings.settings import Settings, unknown_names
from frazil.run.state.tables import create_destination
from frazil.verify.catalogs import Catalogs, TimedRestCatalog
from tests.unit.iceberg.orders import TABLE, destination

RAN: list[str] = []
"""What tables made run."""

HOSTILE = {
    "write.py-location-provider.impl": f"{__name__}.Locations",
    "py-io-impl": f"{__name__}.hostile_io",
    "s3.endpoint": "https://evil.example.org",
    "s3.proxy-uri": "https://evil.example.org",
    "s3.access-key-id": "theirs",
    "adls.connection-string": "theirs",
    "gcs.service.host": "https://evil.example.org",
    "uri": "https://evil.example.org",
    "credential": "theirs",
}
OURS = {"s3.endpoint": "https://store.example.org", "s3.secret-access-key": "hunter2"}


class Locations(SimpleLocationProvider):
    """What a table names runs as soon as it is made."""

    def __init__(self, location: str, properties: dict[str, str]) -> None:
        RAN.append("locations")
        super().__init__(location, properties)


def hostile_io(properties: dict[str, str]) -> FileIO:
    """The same of a file-io, which also sees all properties."""
    RAN.append("io")
    return PyArrowFileIO(properties)


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@pytest.fixture
def altered(tmp_path: Path) -> Path:
    """A SQL catalog with a table that somebody altered by another tool."""
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    foreign = SqlCatalog("lake", **place)
    foreign.create_namespace("shop")
    table = foreign.create_table(TABLE, declared_schema(destination()))
    with table.transaction() as transaction:
        transaction.set_properties({**HOSTILE, "write.location-provider.impl": "com.example.Evil"})
    assert RAN, "PyIceberg runs no such class any more"
    foreign.close()
    RAN.clear()
    return tmp_path


def lake_of(folder: Path, *allowed: str) -> Lake:
    """The catalog as a project opens it."""
    uri, warehouse = f"sqlite:///{folder}/catalog.db", f"file://{folder}/warehouse"
    return Lake("lake", uri, warehouse, OURS, table_properties=allowed)


def written(table: Table) -> list[str]:
    """Write rows of a table as a task does, and a file beside its metadata as a driver does."""
    writer = DataFileWriter(staging_table(TABLE, table))
    writer.write(pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32()), "day": ["mon"]}))
    return [metadata_path(table, "manifest.json"), *(file.path for file in writer.close())]


def test_table_properties_run_no_code_and_do_not_change_the_storage(altered: Path) -> None:
    """Loaded, written, committed to, loaded again: what stands in a table describes the table."""
    lake = lake_of(altered)

    for _ in range(2):
        table = lake.load_table(TABLE)
        assert written(table)
        with table.transaction() as transaction:
            transaction.set_properties({"comment": "orders"})
        theirs = {name for name, value in HOSTILE.items() if table.io.properties.get(name) == value}
        assert theirs == set()
        assert table.io.properties["s3.endpoint"] == OURS["s3.endpoint"]

    assert RAN == []
    assert lake.load_table(TABLE).properties["comment"] == "orders"


def test_settings_allow_properties_of_tables_by_name(altered: Path) -> None:
    """Who runs Frazil may know what such a class does."""
    table = lake_of(altered, "write.py-location-provider.impl", "s3.endpoint").load_table(TABLE)

    assert written(table)
    assert set(RAN) == {"locations"}
    assert table.io.properties["s3.endpoint"] == HOSTILE["s3.endpoint"]
    assert table.io.properties.get("s3.proxy-uri") is None


@pytest.mark.parametrize("kind", [BoundedRestCatalog, TimedRestCatalog])
def test_only_the_rest_server_may_change_the_storage_of_a_table(
    altered: Path, kind: type[BoundedRestCatalog | TimedRestCatalog]
) -> None:
    """Vended credentials and endpoints are the server's word; properties of the table are not."""
    vended = {"s3.session-token": "vended", "s3.region": "north"}
    metadata = lake_of(altered, *HOSTILE).load_table(TABLE).metadata
    RAN.clear()
    catalog = kind.__new__(kind)
    catalog.properties = dict(OURS)
    catalog._auth_manager = None
    answer = TableResponse.model_validate(
        {"metadata-location": "file:///nowhere/1.json", "metadata": metadata.model_dump(), "config": vended}
    )

    table = catalog._response_to_table(("shop", "orders"), answer)

    assert RAN == []
    assert table.io.properties == {**OURS, **vended}


@pytest.mark.parametrize("name", ["s3.session-token-expires-at-ms", "gcs.oauth2.token-expires-at"])
def test_files_get_new_keys_where_those_of_the_table_ended(altered: Path, name: str) -> None:
    """A batch that was staged for longer than a catalog lends keys; tables with keys that last are not loaded again."""
    table = lake_of(altered).load_table(TABLE)
    lasting = table.io = StorageFileIO(OURS | {name: str(2**42)})
    write_text(table, metadata_path(table, "a"), "a")
    assert table.io is lasting
    table.io = StorageFileIO(OURS | {name: "1"})

    write_text(table, metadata_path(table, "b"), "b")

    assert name not in table.io.properties
    assert read_text(table, metadata_path(table, "b")) == "b"


def test_files_beside_metadata_end_as_the_catalog_asks(altered: Path) -> None:
    """For stores that take only names of Iceberg's; an orphan removal knows them."""
    folder = f"file://{altered}/warehouse"
    lake = Lake("lake", f"sqlite:///{altered}/catalog.db", folder, {"frazil.file-suffix": ".stats"})

    assert metadata_path(lake.load_table(TABLE), "frazil-orders-1-x.json").endswith("/frazil-orders-1-x.json.stats")
    assert is_rules_file(f"{folder}/metadata/{rules_file('orders', '0123456789ab')}.stats")


def test_verify_reads_a_table_that_names_code_without_running_it(altered: Path) -> None:
    """The check opens catalogs by itself, with the same care."""
    settings = CatalogSettings.model_validate(
        {"uri": f"sqlite:///{altered}/catalog.db", "warehouse": f"file://{altered}/warehouse", "properties": OURS}
    )
    pipeline = Pipeline.model_validate(
        {"name": "orders", "source": {"topics": ["o"]}, "destinations": [{"table": TABLE, "columns": {"id": "long"}}]}
    )

    table = Catalogs(pipeline, {"lake": settings}).table(TABLE)

    assert table.io.properties["s3.endpoint"] == OURS["s3.endpoint"]
    assert "s3.proxy-uri" not in table.io.properties
    assert RAN == []


def test_table_that_names_a_class_for_spark_is_given_to_no_engine(altered: Path) -> None:
    """Iceberg's Java side takes one class from a table; Spark reads the table by itself, so it does not get it."""
    lake = lake_of(altered)
    with pytest.raises(Terminal, match=r"table shop.orders has the property write.location-provider.impl"):
        lake.refuse_code(lake.load_table(TABLE))

    allowing = lake_of(altered, "write.location-provider.impl")
    allowing.refuse_code(allowing.load_table(TABLE))


@pytest.mark.parametrize(
    "name",
    [
        *HOSTILE,
        *("write.location-provider.impl", "io-impl", "s3.secret-access-key", "client.region", "adls.sas-token.x"),
        *("frazil.batch.orders", "kafka.offsets.orders", "write.data.path", "write.object-storage.path", "hdfs.host"),
    ],
)
def test_pipeline_file_cannot_set_storage_properties(tmp_path: Path, name: str) -> None:
    """Refused by `frazil validate` and DAGs, and again where the table would be made; the settings can allow it."""
    declared = destination(properties={name: "x"}, partition_by=[])
    file = {"name": "orders", "source": {"topics": ["o"]}, "destinations": [declared.model_dump(exclude_unset=True)]}
    pipeline = Pipeline.model_validate(file)

    (problem,) = unknown_names(pipeline, settings_of({}))
    assert problem.startswith(f"destinations.0.properties.{name}: is refused")
    assert "catalogs.lake.table_properties" in problem
    assert list(unknown_names(pipeline, settings_of({"table_properties": [name]}))) == []

    with pytest.raises(Terminal, match="can't be created"):
        create_destination(lake_of(tmp_path), declared)
    assert lake_of(tmp_path).tables() == []
    assert RAN == []


def test_descriptive_iceberg_properties_are_accepted() -> None:
    """What people set on tables: formats, sizes, ages, names."""
    names = (
        *("write.parquet.compression-codec", "write.target-file-size-bytes", "commit.retry.num-retries", "comment"),
        *("history.expire.max-snapshot-age-ms", "read.split.target-size", "format-version", "gc.enabled", "owner"),
        *("write.metadata.metrics.column.id", "write.object-storage.enabled", "schema.name-mapping.default"),
    )

    assert list(refused_properties(names, ())) == []


def settings_of(catalog: Mapping[str, Any]) -> Settings:
    """Settings with one catalog."""
    entry = {"uri": "sqlite:////nowhere/catalog.db", "warehouse": "file:///nowhere", **catalog}
    return Settings.model_validate({"clusters": {"local": {"bootstrap_servers": "x"}}, "catalogs": {"lake": entry}})
