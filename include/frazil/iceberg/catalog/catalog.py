"""The catalogs of the settings file, opened by PyIceberg; and folders of small files, on disk or in an object store."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

from pyarrow.fs import FileSelector, FileSystem, FileType
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, ServerError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.utils.properties import property_as_bool
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random

from frazil.error_codes import BAD_TABLE_PROPERTY, TABLE_MISSING
from frazil.errors import FrazilError
from frazil.extras import require, require_database
from frazil.iceberg.catalog.table import JAVA_LOCATIONS
from frazil.iceberg.errors import translated
from frazil.iceberg.patches.files import StorageFileIO, opened_storage, with_storage
from frazil.iceberg.patches.metadata import FORMAT_VERSION, metadata_text
from frazil.pipeline.settings.catalogs import SIGNING, SUFFIX

if TYPE_CHECKING:
    from frazil.iceberg.catalog.rest import BoundedRestCatalog
    from frazil.iceberg.catalog.sql import CachingCatalog

_LOCAL = "local"
_UNFINISHED = "."
"""Prefix of a file that is being written."""


class Folder:
    """Files of one folder, without those below it.

    Every method raises:
        Retryable: The storage is not available now.
        Terminal: A file is gone, permission is denied, or there is no such kind of storage.

    Its properties are those of a file-io, such as ``s3.endpoint``; they may contain secrets.
    """

    def __init__(self, location: str, properties: Mapping[str, str]) -> None:
        self.location = location.rstrip("/")
        self.properties = dict(properties)

    def __repr__(self) -> str:
        return f"Folder({self.location!r})"

    def names(self) -> list[str]:
        """Names of the files, sorted; none where there is no folder."""
        with translated(f"listing {self.location}"):
            files, path = self._opened()
            entries = files.get_file_info(FileSelector(path, allow_not_found=True))
        names = (entry.base_name for entry in entries if entry.type == FileType.File)
        return sorted(name for name in names if not name.startswith(_UNFINISHED))

    def read(self, name: str) -> str:
        """The text of a file."""
        with translated(f"reading {self.location}/{name}"):
            files, path = self._opened()
            with files.open_input_stream(f"{path}/{name}") as stream:
                return bytes(stream.read()).decode()

    def find(self, name: str) -> str | None:
        """The text of a file; None if it does not exist. Bytes that are no UTF-8 are replaced."""
        with translated(f"looking for {self.location}/{name}"):
            files, path = self._opened()
            if files.get_file_info(f"{path}/{name}").type != FileType.File:
                return None
            try:
                with files.open_input_stream(f"{path}/{name}") as stream:
                    return bytes(stream.read()).decode(errors="replace")
            except FileNotFoundError:
                return None

    def write(self, name: str, text: str) -> None:
        """Replace a file atomically: readers see the old text or the new one."""
        with translated(f"writing {self.location}/{name}"):
            files, path = self._opened()
            if files.type_name != _LOCAL:  # an object appears when it is complete
                _put(files, f"{path}/{name}", text)
                return
            files.create_dir(path)
            _put(files, f"{path}/{_UNFINISHED}{name}", text)
            files.move(f"{path}/{_UNFINISHED}{name}", f"{path}/{name}")

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        with translated(f"deleting {self.location}/{name}"):
            files, path = self._opened()
            if files.get_file_info(f"{path}/{name}").type == FileType.File:
                with suppress(FileNotFoundError):  # somebody else was faster
                    files.delete_file(f"{path}/{name}")

    def check_writable(self) -> None:
        """Write a small file, read it back, and remove it."""
        name = f"frazil-doctor-{uuid4()}.json{self.properties.get(SUFFIX, '')}"
        self.write(name, "written by frazil doctor")
        try:
            self.read(name)
        finally:
            self.delete(name)

    def _opened(self) -> tuple[FileSystem, str]:
        io = StorageFileIO(self.properties)
        scheme, netloc, path = io.parse_location(self.location, self.properties)
        return io.fs_by_scheme(scheme, netloc), path


def _put(files: FileSystem, path: str, text: str) -> None:
    with files.open_output_stream(path) as stream:
        stream.write(text.encode())


Kind = Literal["jdbc", "rest", "hive", "glue"]

_CREATE_ATTEMPTS: Final = 5
_CREATE_SECONDS: Final = 10.0
"""How often, and for how long, a REST server is asked to create a table. If two clients create it at once, one may get a 500, or a
409 before the table exists. The next try answers that it exists.
"""


class Lake:
    """One catalog and its tables.

    Args:
        name: Its name in the settings file. SQL catalogs use it as a key column, so Spark must use the same.
        uri: SQLAlchemy URI of the catalog's database, the root of a REST catalog's API, addresses of a metastore, or an endpoint of
            Glue, empty for Amazon's.
        warehouse: Where new tables are stored; a REST catalog may know that itself.
        properties: Further catalog and file-io properties.
        kind: `jdbc` for the tables of a SQL database, `rest` for a server, `hive` for a Hive Metastore, `glue` for AWS Glue.
        table_properties: Table properties that may change how files are read and written; see `frazil.iceberg.catalog.table`.
    """

    def __init__(
        self,
        name: str,
        uri: str,
        warehouse: str | None,
        properties: Mapping[str, str],
        *,
        kind: Kind = "jdbc",
        table_properties: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.uri = uri
        self.warehouse = warehouse
        self.properties = properties
        self.kind = kind
        self.table_properties = frozenset(table_properties)
        self._opened: Catalog | None = None
        self._opening = Lock()
        self._failure: FrazilError | None = None

    def __repr__(self) -> str:
        return f"Lake({self.name!r})"

    @property
    def _catalog(self) -> Catalog:
        """The catalog. One thread opens it for all: each would create the SQL catalog's tables.

        A thread that waited while another failed raises that failure, so that ten threads wait for a dead server as long as one.
        """
        failure = self._failure
        with self._opening:
            if self._opened is None and self._failure is not None and self._failure is not failure:
                raise self._failure
            if self._opened is None:
                try:
                    self._opened = self._open()
                except FrazilError as problem:
                    self._failure = problem
                    raise
            return self._opened

    def close(self) -> None:
        """Close idle connections. The next request opens the catalog again."""
        with self._opening:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def import_client(self) -> None:
        """Import the modules that opening the catalog needs, if they are installed. Opens nothing."""
        with suppress(ImportError):
            import_module(f"frazil.iceberg.catalog.{'sql' if self.kind == 'jdbc' else self.kind}")

    def _open(self) -> Catalog:
        place = {} if self.warehouse is None else {"warehouse": self.warehouse}
        properties = {**with_storage(self.properties), "uri": self.uri, **place}
        with translated(f"opening catalog {self.name}"):
            catalog = self._new_catalog(properties)
            catalog.table_properties = self.table_properties
            return catalog

    def _new_catalog(self, properties: dict[str, str]) -> BoundedRestCatalog | CachingCatalog:
        if self.kind == "rest":
            if property_as_bool(properties, SIGNING, default=False):
                require("glue", f"catalog {self.name}, whose requests are signed,")
            from frazil.iceberg.catalog.rest import BoundedRestCatalog, with_login

            return BoundedRestCatalog(self.name, **with_login(properties))
        if self.kind == "hive":
            require("hive", f"catalog {self.name}")
            from frazil.iceberg.catalog.hive import SharedHiveCatalog

            return SharedHiveCatalog(self.name, **properties)
        if self.kind == "glue":
            require("glue", f"catalog {self.name}")
            from frazil.iceberg.catalog.glue import SharedGlueCatalog

            endpoint = {"glue.endpoint": self.uri} if self.uri else {}
            return SharedGlueCatalog(self.name, **{**properties, **endpoint})
        require_database(properties["uri"], f"catalog {self.name}")
        from frazil.iceberg.catalog.sql import open_sql

        return open_sql(self.name, properties)

    def check_writable(self) -> None:
        """Check that the catalog can be written: a SQL database by an update of no row, a metastore by a view that is dropped again.

        A REST server and Glue have no such check: for them, success only means that they list their namespaces.

        Raises:
            Terminal: The database refuses the update, or the metastore does not compare what commits replace.
        """
        with translated(f"asking catalog {self.name} whether it can be written"):
            if self.kind in ("rest", "glue"):
                self._catalog.list_namespaces()
                return
            if self.kind == "hive":
                self._check_commits()
                return
            from frazil.iceberg.catalog.sql import check_writable

            check_writable(self._catalog)

    def _check_commits(self, namespace: str = "default") -> None:
        """Refuse a metastore that does not compare the version which a commit replaces."""
        from frazil.iceberg.catalog.hive import SharedHiveCatalog

        if isinstance(catalog := self._catalog, SharedHiveCatalog):
            catalog.check_commits(namespace)

    def storage(self, tables: Iterable[str]) -> Folder | None:
        """The folder with the files of these tables: the warehouse.

        A REST catalog names storage only with a table: there it is the metadata folder of the first existing one, or None.
        """
        if self.kind != "rest":
            return Folder(self.warehouse or "", self.properties)
        table = next((existing for name in tables if (existing := self.find_table(name)) is not None), None)
        return (
            None
            if table is None
            else Folder(f"{table.location()}/metadata", {**self.properties, **table.io.properties})
        )

    def find_table(self, name: str) -> Table | None:
        """The table as it is now, or None if there is none."""
        with translated(f"loading table {name} of catalog {self.name}"):
            try:
                return self._catalog.load_table(name)
            except NoSuchTableError:
                return None

    @property
    def catalogs(self) -> tuple[Lake, ...]:
        """All catalogs with tables: this one."""
        return (self,)

    def catalog_of(self, name: str) -> Lake:  # noqa: ARG002 - lakes of several catalogs ask
        """The catalog that a table is in."""
        return self

    def branch_of(self, name: str) -> str | None:  # noqa: ARG002 - lakes with branches ask
        """The branch of a table that is read and written; None stands for main."""
        return None

    def begin_branch(self, name: str) -> Table:
        """The table, after creating the branch that is read and written, from main, if it does not exist yet."""
        return self.load_table(name)

    def load_table(self, name: str) -> Table:
        """The table as it is now.

        Raises:
            Terminal: There is no such table.
        """
        table = self.find_table(name)
        if table is None:
            catalog = self.catalog_of(name)
            raise TABLE_MISSING.terminal(
                f"there is no table {name} in catalog {catalog.name}",
                next_step=f"its tables: {', '.join(catalog.tables()) or 'none yet'}",
            )
        return table

    def set_property(self, name: str, key: str, value: str) -> None:
        """Set a property of a table.

        Raises:
            Retryable: The catalog can't be reached, or others changed the table every time.
        """
        table = self.catalog_of(name).load_table(name)
        with translated(f"setting {key} of table {name}"), table.transaction() as change:
            change.set_properties({key: value})

    def refuse_code(self, table: Table) -> None:
        """Refuse a table whose properties name a class that the settings don't allow: an engine would run it.

        Raises:
            Terminal: They name one.
        """
        if JAVA_LOCATIONS in table.properties and JAVA_LOCATIONS not in self.table_properties:
            raise BAD_TABLE_PROPERTY.terminal(
                f"table {'.'.join(table.name())} has the property {JAVA_LOCATIONS}: Spark would run the class that it names",
                next_step="find out who set it. Remove it (ALTER TABLE … UNSET TBLPROPERTIES), or allow it: list it in the settings"
                " under table_properties of the catalog",
            )

    def create_table(
        self,
        name: str,
        schema: Schema,
        spec: PartitionSpec,
        properties: Mapping[str, str],
        order: SortOrder = UNSORTED_SORT_ORDER,
    ) -> Table:
        """Create a table and its namespaces, unless another process did it first. Retries if the server fails.

        Raises:
            Retryable: The catalog can't be reached, or fails each time.
        """
        with translated(f"creating table {name} in catalog {self.name}"):
            retrying = Retrying(
                retry=retry_if_exception_type((ServerError, NoSuchTableError)),
                stop=stop_after_attempt(_CREATE_ATTEMPTS) | stop_after_delay(_CREATE_SECONDS),
                wait=wait_random(0.05, 0.5),
                reraise=True,
            )
            return retrying(self._create_once, name, schema, spec, properties, order)

    def _create_once(
        self, name: str, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str], order: SortOrder
    ) -> Table:
        namespace = tuple(name.split(".")[:-1])
        for depth in range(1, len(namespace) + 1):
            self._catalog.create_namespace_if_not_exists(namespace[:depth])
        if self.kind == "hive":
            self._check_commits(".".join(namespace))
        try:
            if self.kind != "rest" and properties.get("format-version") == str(FORMAT_VERSION):
                return self._register(name, schema, spec, properties, order)
            location = self._location(name) if self.kind in ("hive", "glue") else None
            return self._catalog.create_table(
                name, schema, location, partition_spec=spec, sort_order=order, properties=dict(properties)
            )
        except TableAlreadyExistsError:
            return self._catalog.load_table(name)

    def _register(
        self, name: str, schema: Schema, spec: PartitionSpec, properties: Mapping[str, str], order: SortOrder
    ) -> Table:
        """Create a table of version 3: write its first metadata, which PyIceberg does not do, and register it in the catalog."""
        location = self._location(name)
        fresh = new_table_metadata(schema, spec, order, location, dict(properties))
        path = f"{location}/metadata/00000-{uuid.uuid4()}.metadata.json"
        with opened_storage(self.properties, path).new_output(path).create() as stream:
            stream.write(metadata_text(fresh).encode())
        return self._catalog.register_table(name, path)

    def _location(self, name: str) -> str:
        return f"{self.warehouse}/{name.replace('.', '/')}"

    def tables(self) -> list[str]:
        """Names of all tables, sorted."""
        with translated(f"listing catalog {self.name}"):
            names = {".".join(table) for space in self._namespaces() for table in self._catalog.list_tables(space)}
        return sorted(names)

    def _namespaces(self, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        for namespace in self._catalog.list_namespaces(parent):
            yield namespace
            yield from self._namespaces(namespace)
