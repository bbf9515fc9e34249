"""Settings for captures: the databases that they read, and the topic of their positions."""

from __future__ import annotations

from pathlib import PurePath
from typing import Final

from pydantic import Field, field_validator

from frazil.pipeline.syntax.strict import Model, TopicName

_OWN_OPTIONS: Final = frozenset({"url", "user", "password", "driver", "dbtable", "query", "fetchsize"})
"""Options of Spark's JDBC source that have keys of their own, here or in the capture file."""


class DatabaseSettings(Model):
    """A database that captures read, through a JDBC driver."""

    url: str = Field(description="JDBC address, such as jdbc:postgresql://db.example.org/shop.", repr=False)
    user: str | None = Field(None, description="Who signs in.", repr=False)
    password: str | None = Field(None, description="The password, best as `${env:NAME}`.", repr=False)
    driver: str = Field(description="Class of the driver, such as org.postgresql.Driver.")
    jars: tuple[str, ...] = Field(
        (), description="Paths of the driver's jars. Without: a driver that Spark has already, as SQLite's."
    )
    queries: bool = Field(
        False,
        description="Whether captures may bring their own SQL, `query`. It runs with all rights of `user`. Without: they name a table"
        " or view.",
    )
    properties: dict[str, str] = Field(
        {}, description="Further properties of the driver, such as ssl or sslmode.", repr=False
    )

    @property
    def options(self) -> dict[str, str]:
        """Options of Spark's JDBC source that reach the database."""
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
            raise ValueError(f"{', '.join(reserved)}: is set elsewhere, here or in the capture file")
        return properties


class CaptureSettings(Model):
    """Which files captures may read, and where they keep their positions."""

    folders: tuple[str, ...] = Field(
        (),
        description="Folders whose files captures may read, with all that is below them, by absolute paths. A link that leads out of"
        " them is not followed. Without: no files.",
    )

    positions: TopicName = Field(
        "frazil.captures",
        description="Compacted topic, on the cluster of the capture, that holds the position of each capture by its name. It is"
        " made if it is missing. Another name is another memory: captures that ran are refused.",
    )

    @field_validator("folders")
    @classmethod
    def _are_absolute(cls, folders: tuple[str, ...]) -> tuple[str, ...]:
        if unfit := [
            folder for folder in folders if not PurePath(folder).is_absolute() or ".." in PurePath(folder).parts
        ]:
            raise ValueError(f"expected absolute paths without .., found {unfit[0]!r}")
        return folders
