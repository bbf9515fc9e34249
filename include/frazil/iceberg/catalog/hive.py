"""A Hive Metastore as a catalog: PyIceberg's, with time limits, and with commits that the metastore itself compares.

PyIceberg commits under a lock of the metastore. Locks expire: a process that was paused while it held one would overwrite the
commits of others. So a commit also names the version that it replaces, and the metastore refuses it if the table has another one
(HIVE-26882: Hive 2.3.10, 4.0 and newer). A metastore that does not compare is refused.

The columns in the metastore are a copy that Hive shows; a table's columns are in its metadata file. If the metastore refuses the
copy (a name or a type is too long, a type changed, its database lacks a letter of a doc), it gets no columns until the next
commit. Rests on private names of PyIceberg 0.12.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import local
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    DataOperationType,
    EnvironmentContext,
    InvalidObjectException,
    InvalidOperationException,
    LockRequest,
    LockResponse,
    MetaException,
    NoSuchLockException,
    SerDeInfo,
    ShowLocksRequest,
    StorageDescriptor,
    UnlockRequest,
)
from hive_metastore.ttypes import Table as HiveTable
from pyiceberg.catalog.hive import HiveCatalog, _HiveClient
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TSaslClientTransport, TTransportException

from frazil.error_codes import CATALOG_REFUSED
from frazil.iceberg.catalog.sql import CachingCatalog

_ANSWER_MS: Final = 60_000
"""How long a connection may take to open, and the wait for an answer. PyIceberg itself waits forever."""

_LOCKS: Final = {"lock-check-max-wait-time": "0.5", "lock-check-retries": "60"}
"""Half a minute of short waits for a lock: a commit takes a second. PyIceberg's default is four waits of up to eight seconds."""

_STALE_SECONDS: Final = 120
"""Age from which a lock of Frazil counts as left by a killed or paused process. Its commit can't overwrite others: see above."""

_AGENT: Final = "frazil"
"""Name of Frazil in the metastore's list of locks."""

_LONGEST_PARAMETER: Final = 4_000
"""Characters of a parameter that each metastore's database holds. Longer ones stay in the metadata file alone."""

_PREVIOUS: Final = "previous_metadata_location"
_MODIFIED: Final = "The table has been modified"
"""Part of the metastore's error if the table has another version than the commit names."""


class SharedHiveCatalog(CachingCatalog, HiveCatalog):
    """A metastore that threads and processes share."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{**_LOCKS, **properties})

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> _HiveClient:
        return _Connections(properties)

    def _convert_hive_into_iceberg(self, table: HiveTable) -> Table:
        convert = super()._convert_hive_into_iceberg
        location = (table.parameters or {}).get("metadata_location", "")
        return self._cached_table((table.dbName, table.tableName), location, lambda: convert(table))

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace."""
        try:
            super().create_namespace(namespace, properties)
        except MetaException as error:  # another client creates it at the same moment
            if not self.namespace_exists(namespace):
                raise
            raise NamespaceAlreadyExistsError(f"Namespace {namespace} already exists") from error

    def _create_lock_request(self, database_name: str, table_name: str) -> LockRequest:
        request = super()._create_lock_request(database_name, table_name)
        request.agentInfo = _AGENT
        for component in request.component:  # some versions of Hive refuse components without it
            component.operationType = DataOperationType.NO_TXN
        return request

    def _wait_for_lock(self, database_name: str, table_name: str, lockid: int, open_client: Client) -> LockResponse:
        locks = open_client.show_locks(ShowLocksRequest(dbname=database_name, tablename=table_name)).locks or ()
        oldest = 1_000 * (time.time() - _STALE_SECONDS)
        for lock in locks:
            if lock.agentInfo == _AGENT and lock.lockid != lockid and (lock.lastheartbeat or oldest) < oldest:
                open_client.unlock(UnlockRequest(lock.lockid))
        return super()._wait_for_lock(database_name, table_name, lockid, open_client)

    def check_commits(self, database: str = "default") -> None:
        """Check by a view, which is dropped again, that the metastore gives locks and compares what a commit replaces.

        Raises:
            Terminal: It does not compare.
        """
        name = f"frazil_probe_{uuid4().hex}"
        view = HiveTable(
            dbName=database,
            tableName=name,
            owner=getpass.getuser(),
            sd=StorageDescriptor(cols=[], serdeInfo=SerDeInfo()),
            partitionKeys=[],
            parameters={"metadata_location": "current"},
            viewOriginalText="SELECT 1",
            viewExpandedText="SELECT 1",
            tableType="VIRTUAL_VIEW",
        )
        with self._client as client:
            client.unlock(UnlockRequest(client.lock(self._create_lock_request(database, name)).lockid))
            client.create_table(view)
            try:
                view.parameters = {"metadata_location": "next", _PREVIOUS: "another"}
                client.alter_table_with_environment_context(database, name, view, EnvironmentContext(properties={}))
            except CommitFailedException:
                return
            finally:
                client.drop_table(database, name, deleteData=False)
        raise CATALOG_REFUSED.terminal(
            f"the metastore {self.properties['uri']} does not check which metadata a commit replaces: expected Hive 2.3.10,"
            " 4.0 or newer (HIVE-26882), found an older one. A run that pauses during a commit could undo other commits",
            next_step="upgrade the metastore to Hive 4, or put a REST server in front of it (type: rest)",
        )


class _Client(Client):  # type: ignore[misc]  # made by Thrift, without types
    """A connection whose commits name the version that they replace. Leaves out of the copy what the metastore can't hold."""

    def create_table(self, tbl: HiveTable) -> None:
        """Create a table; without columns if the metastore refuses them."""
        _shorten(tbl)
        try:
            super().create_table(tbl)
        except (InvalidObjectException, MetaException):
            _strip(tbl)
            super().create_table(tbl)

    def alter_table_with_environment_context(
        self, dbname: str, tbl_name: str, new_tbl: HiveTable, environment_context: EnvironmentContext
    ) -> None:
        """Replace the version that the table's parameters name as the previous one; without columns if the metastore refuses them."""
        _shorten(new_tbl)
        compared = {
            "expected_parameter_key": "metadata_location",
            "expected_parameter_value": new_tbl.parameters[_PREVIOUS],
        }
        environment_context.properties = {**environment_context.properties, **compared}
        alter = partial(super().alter_table_with_environment_context, dbname, tbl_name, new_tbl, environment_context)
        try:
            _call(alter)
        except (InvalidOperationException, MetaException):
            _strip(new_tbl)
            _call(alter)

    def unlock(self, rqst: UnlockRequest) -> None:
        """Release a lock, if it still exists."""
        with suppress(NoSuchLockException):
            super().unlock(rqst)


def _call(alter: Callable[[], None]) -> None:
    """Call `alter`; if the table has another version by now, raise what PyIceberg retries: CommitFailedException."""
    try:
        alter()
    except MetaException as error:
        if _MODIFIED in str(error.message):
            raise CommitFailedException(f"{error.message}") from error
        raise


def _strip(table: HiveTable) -> None:
    """Remove what the metastore may have refused: columns, and parameters with letters that its database may lack."""
    table.sd.cols = []
    table.parameters = {
        name: text
        for name, text in table.parameters.items()
        if (name + text).isascii() or name.endswith("metadata_location")
    }


def _shorten(table: HiveTable) -> None:
    table.parameters = {name: text for name, text in table.parameters.items() if len(text) <= _LONGEST_PARAMETER}


class _Connection(_HiveClient):
    """One connection to one server, with time limits."""

    def _init_thrift_transport(self) -> Any:
        address = urlsplit(self._uri)
        socket = TSocket(address.hostname, address.port)
        socket.setTimeout(_ANSWER_MS)
        if self._kerberos_auth:
            return TSaslClientTransport(socket, host=address.hostname, service=self._kerberos_service_name)
        return TBufferedTransport(socket)

    def _client(self) -> Client:
        client = _Client(TBinaryProtocol(self._transport))
        if self._ugi:
            client.set_ugi(*self._ugi)
        return client


class _Connections(_HiveClient):
    """A connection for each `with`, to the first server that answers. PyIceberg has a single one, which threads would close for each
    other.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        login = (
            properties.get("ugi"),
            properties.get("hive.kerberos-authentication", "false").lower() == "true",
            properties.get("hive.kerberos-service-name", "hive"),
        )
        self._servers: Final = [partial(_Connection, uri.strip(), *login) for uri in properties["uri"].split(",")]
        self._open: Final = local()

    def __enter__(self) -> Client:
        for connect in self._servers[:-1]:
            with suppress(TTransportException):
                return self._enter(connect())
        return self._enter(self._servers[-1]())

    def _enter(self, connection: _Connection) -> Client:
        self._open.connection = connection
        return connection.__enter__()

    def __exit__(
        self, exctype: type[BaseException] | None, excinst: BaseException | None, exctb: TracebackType | None
    ) -> None:
        self._open.connection.__exit__(exctype, excinst, exctb)
