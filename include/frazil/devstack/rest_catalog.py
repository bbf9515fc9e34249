"""Iceberg's own REST catalog server in one small JVM, loopback only. Its database is SQLite or PostgreSQL, its storage a folder or S3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from frazil.devstack.object_store import REGION
from frazil.runtime.home import LOOPBACK, PORT_VARIABLES, Home, basic_login, inherited_environment, require_free, serves
from frazil.runtime.jars import fetch, jar_paths
from frazil.runtime.java import ensure_java
from frazil.runtime.process import Processes, Spec

NAME: Final = "rest-catalog"
GRACE_SECONDS: Final = 15.0

_CONFIGURATION: Final = Path(__file__).with_suffix(".xml")
_LOGIN: Final = _CONFIGURATION.with_stem("rest_catalog_login")

USER: Final = "frazil"
"""The user, if the server asks for a login."""

_START_SECONDS: Final = 60.0
"""Bounds the time until the server answers: 1 s."""

_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


@dataclass(frozen=True, slots=True)
class Backing:
    """The server's database, and the storage of its tables.

    Attributes:
        warehouse: The folder of tables: a path, or an address in S3.
        properties: Properties for `rest_catalog.xml`. Everybody on the machine can read them.
        secrets: Environment of the server: login of the database, keys of S3. If it has CATALOG_LOGIN, the password of `USER`,
            the server asks for a login.
        jars: Further sets of jars.
    """

    warehouse: str
    properties: Mapping[str, str]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    jars: tuple[str, ...] = ()

    @classmethod
    def folder(cls, home: Home) -> Backing:
        """Tables in a folder of the home, the database in an SQLite file."""
        return cls(str(home.warehouse), {"database": f"jdbc:sqlite:{home.catalog}"})

    @classmethod
    def s3(cls, warehouse: str, endpoint: str, database: str, secrets: Mapping[str, str]) -> Backing:
        """Tables in the S3 server at `endpoint`, the database in PostgreSQL at a JDBC address.

        The secrets are CATALOG_USER and CATALOG_PASSWORD of the database, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of S3, and
        CATALOG_LOGIN.
        """
        properties = {
            "database": database,
            "clients": "4",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.endpoint": endpoint,
            "client.region": REGION,
        }
        return cls(warehouse, properties, secrets, ("s3",))


def start(home: Home, processes: Processes, report: Callable[[str], None], backing: Backing) -> None:
    """Start the server unless it runs, and wait until it answers. Missing jars are fetched.

    Raises:
        Terminal: The port is taken, or there is no fitting Java.
        Retryable: The server ended or did not answer in time; the end of its log is quoted.
    """
    if processes.running(NAME) is None:
        sets = ("rest", *backing.jars)
        fetch(home, *sets, report=report)
        processes.stop((NAME, GRACE_SECONDS))
        require_free(home.ports.catalog, PORT_VARIABLES["catalog"], "the REST catalog")
        classpath = ":".join(str(path) for name in sets for path in jar_paths(home, name))
        configurations = [_CONFIGURATION, *([_LOGIN] if "CATALOG_LOGIN" in backing.secrets else [])]
        settings = {"user": USER, "port": str(home.ports.catalog), "warehouse": backing.warehouse, **backing.properties}
        arguments = [f"{name}={value}" for name, value in settings.items()]
        command = [str(ensure_java(report).command), *_JVM, "-cp", classpath, "org.eclipse.jetty.xml.XmlConfiguration"]
        # Variables AWS_… of the user are credentials of another S3.
        env = {key: setting for key, setting in inherited_environment().items() if not key.startswith("AWS_")}
        command += [*arguments, *map(str, configurations)]
        processes.start(Spec(NAME, command, {**env, **backing.secrets}, url(home), GRACE_SECONDS))
    hidden = [secret for name, secret in backing.secrets.items() if name != "CATALOG_USER"]

    def is_up() -> bool:
        password = backing.secrets.get("CATALOG_LOGIN")
        return serves(home.ports.catalog, "/v1/config", "" if password is None else basic_login(USER, password))

    processes.wait_ready(NAME, f"catalog: the server at {url(home)}", is_up, _START_SECONDS, hidden)


def stop(processes: Processes) -> None:
    """Stop the server if it runs."""
    processes.stop((NAME, GRACE_SECONDS))


def url(home: Home) -> str:
    """Address of the server's API."""
    return f"http://{LOOPBACK}:{home.ports.catalog}"
