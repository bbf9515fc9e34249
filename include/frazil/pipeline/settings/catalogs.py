"""Catalogs of the settings file as models, the kinds of catalogs that Frazil refuses, and the databases that captures read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from frazil.pipeline.syntax.strict import Model, TopicName

REFUSED_CATALOGS: Final[Mapping[str, str]] = {
    "hadoop": "PyIceberg, by which Frazil commits, has no Hadoop catalog, and a commit by renaming a file is not safe in an"
    " object store. Register the tables in a catalog of type jdbc (SQLite on one machine, PostgreSQL beyond it) or rest",
    "dynamodb": "it was not tested. Use type: rest or type: jdbc",
    "bigquery": "it was not tested. Its metastore has an endpoint of Iceberg's REST protocol: type: rest",
    "nessie": "Nessie speaks Iceberg's REST protocol: type: rest, uri: https://HOST/iceberg",
    "polaris": "Polaris speaks Iceberg's REST protocol: type: rest, uri: https://HOST/api/catalog",
    "s3tables": "S3 Tables speaks Iceberg's REST protocol: type: rest",
    "sql": "PyIceberg's SQL catalog is type: jdbc here, since Spark and PyIceberg share it",
}
"""Kind of a catalog that Frazil refuses -> reason, and what to use instead."""

SIGNING: Final = "rest.sigv4-enabled"
"""Property of a REST catalog: whether requests are signed for AWS, by Amazon's libraries."""

SUFFIX: Final = "frazil.file-suffix"
"""Property of a catalog: suffix of Frazil's own files in a table's metadata folder, for stores that only accept Iceberg's files."""


class CatalogSettings(Model):
    """An Iceberg catalog that Spark and PyIceberg share. Its name here is its name in both."""

    type: Literal["jdbc", "rest", "hive", "glue"] = Field(
        "jdbc",
        description="`jdbc`: the tables of a SQL database (SQLite on one machine). `rest`: a server that speaks Iceberg's REST"
        " protocol (Polaris, Lakekeeper, Gravitino, S3 Tables and others). `hive`: a Hive Metastore. `glue`: AWS Glue by its own"
        " protocol.",
    )
    uri: str = Field(
        "",
        description="`jdbc`: the database, such as sqlite:////var/lib/frazil/catalog.db or postgresql://user:password@host/lake;"
        " `rest`: the root of the server's API, such as https://catalog.example.org/api/catalog; `hive`: thrift://host:9083, or"
        " several with commas between them; `glue`: an endpoint, if it is not Amazon's of the region",
        repr=False,
    )
    warehouse: str | None = Field(
        None,
        description="`jdbc`, `hive` and `glue`: where table data is stored, such as file:///var/lib/frazil/warehouse; `rest`:"
        " name or place of the warehouse, for servers that have several.",
    )
    properties: dict[str, str] = Field(
        default_factory=dict,
        description="Further catalog and file-io properties; for `rest` such as credential, token, oauth2-server-uri,"
        " header.NAME or rest.client.socket-timeout-ms.",
        repr=False,
    )

    table_properties: tuple[str, ...] = Field(
        (),
        description="Further properties that pipeline files may give their tables, and that may come from a table where files are"
        " read and written. Without: Iceberg's own `read.*`, `write.*`, `commit.*`, `history.*` and `compatibility.*`, but for"
        " classes (`*.impl`) and places (`*.path`), and a few names; of a table nothing that has a say in its storage, such as"
        " `s3.endpoint`.",
    )

    @field_validator("type", mode="before")
    @classmethod
    def _is_supported(cls, value: object) -> object:
        reason = REFUSED_CATALOGS.get(str(value).lower())
        if reason is not None:
            raise ValueError(f"{value} is not taken: {reason} (docs/catalogs.md)")
        return value

    @property
    def address(self) -> str:
        """The uri for PyIceberg; for PostgreSQL with the driver in `frazil[postgres]`, unless it names another one."""
        return _POSTGRESQL.sub("postgresql+psycopg2://", self.uri) if self.type == "jdbc" else self.uri

    @model_validator(mode="after")
    def _fits_its_type(self) -> Self:
        if self.type != "glue" and not self.uri:
            raise ValueError(f"uri is required by type {self.type}")
        if self.type != "rest" and self.warehouse is None:
            raise ValueError(f"warehouse is required by type {self.type}: where table data is stored")
        if self.type == "hive" and not all(map(_METASTORE.fullmatch, self.uri.split(","))):
            raise ValueError("uri of type hive must be thrift://host:port, or several with commas between them")
        if self.type == "jdbc" and not _DATABASE.match(self.uri):
            raise ValueError(
                "uri of type jdbc must begin with sqlite:/// or postgresql://user:password@host/database, which PyIceberg"
                " opens and Spark's jdbc: address is made of; other databases are not tested"
            )
        return self


_HARMLESS: Final = re.compile(
    r"(read|write|commit|history|compatibility)\.(?!.*\.(impl|path)$).*"
    r"|format-version|gc\.enabled|schema\.name-mapping\.default|comment|owner|engine\.hive\.enabled"
)
"""Properties of a table that can do no harm. A class would run in every process that writes the table, and `s3.endpoint` of a table
would send the catalog's credentials to that address.
"""


def refused_properties(names: Iterable[str], allowed: Collection[str]) -> Iterator[str]:
    """The properties among `names` that a pipeline file must not give a table."""
    return (name for name in names if name not in allowed and not _HARMLESS.fullmatch(name))


MISSING_FEATURES: Final[Mapping[str, str]] = {
    "jdbc": "schema changes of tables of format version 3",
    "hive": "namespaces within namespaces, capitals in names, format version 3",
    "glue": "namespaces within namespaces, capitals in names, format version 3",
}
"""Type of a catalog -> features that its tables can't have; REST catalogs have all."""

_METASTORE: Final = re.compile(r"\s*thrift://[^/\s]+:[0-9]+\s*|\$\{.*")
"""Address of a server, or a reference that is not resolved yet."""

_POSTGRESQL: Final = re.compile(r"^postgresql://")
_DATABASE: Final = re.compile(r"sqlite:///|postgresql(\+psycopg2?)?://|\$\{")
"""Beginning of a database's address, or of a reference that is not resolved yet."""

_OWN_OPTIONS: Final = frozenset({"url", "user", "password", "driver", "dbtable", "query", "fetchsize"})
"""Options of Spark's JDBC source that have keys of their own, in the settings or in the capture file."""


class DatabaseSettings(Model):
    """A database that captures read, through a JDBC driver."""

    url: str = Field(description="JDBC address, such as jdbc:postgresql://db.example.org/shop.", repr=False)
    user: str | None = Field(None, description="Name of the database user.", repr=False)
    password: str | None = Field(None, description="Password of the user, preferably as `${env:NAME}`.", repr=False)
    driver: str = Field(description="Class of the driver, such as org.postgresql.Driver.")
    jars: tuple[str, ...] = Field(
        (), description="Paths of the driver's jars. Without: a driver that Spark already has, such as SQLite's."
    )
    queries: bool = Field(
        False,
        description="Whether captures may have SQL of their own (`query`), which runs with all rights of `user`. Otherwise they can"
        " only name a table or view.",
    )
    properties: dict[str, str] = Field(
        {}, description="Further properties of the driver, such as ssl or sslmode.", repr=False
    )

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's JDBC source for a connection to the database."""
        connection_options = {"url": self.url, "user": self.user, "password": self.password, "driver": self.driver}
        return {**self.properties, **{key: value for key, value in connection_options.items() if value is not None}}

    @field_validator("url")
    @classmethod
    def _is_jdbc(cls, url: str) -> str:
        if not url.startswith("jdbc:"):
            raise ValueError("must begin with jdbc:")
        return url

    @field_validator("properties")
    @classmethod
    def _names_no_own_key(cls, properties: dict[str, str]) -> dict[str, str]:
        if reserved := sorted(key for key in properties if key.lower() in _OWN_OPTIONS):
            raise ValueError(f"{', '.join(reserved)}: has a key of its own, here or in the capture file")
        return properties


class CaptureSettings(Model):
    """Which files captures may read, and where they keep their positions."""

    folders: tuple[str, ...] = Field(
        (),
        description="Absolute paths of folders whose files captures may read, including folders below them. A link out of them is"
        " not followed. Without: no files.",
    )
    positions: TopicName = Field(
        "frazil.captures",
        description="Compacted topic, on the cluster of the capture, with the position of each capture by its name. It is created"
        " if it is missing. After a change of this name, captures that ran before are refused, since they have no position.",
    )

    @field_validator("folders")
    @classmethod
    def _are_absolute(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
        if unfit := [
            folder for folder in folders if not PurePath(folder).is_absolute() or ".." in PurePath(folder).parts
        ]:
            raise ValueError(f"expected absolute paths without .., found {unfit[0]!r}")
        return folders
