"""The production profile: its generated passwords, its settings file, and the values of the references in it."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from frazil.devstack import object_store, rest_catalog, schema_registry, spark_cluster
from frazil.devstack.object_store import BUCKET, Keys
from frazil.error_codes import STACK_FAILED
from frazil.runtime.home import PRIVATE_FILE, Home, exclusive, private_folder, write_atomically

if TYPE_CHECKING:
    from frazil.devstack.secured import Secured

SETTINGS: Final = "production.yaml"
"""The settings file in this package, which `write_settings` copies into the home."""

USER: Final = "frazil"
"""Kafka's user for all clients of the stack."""

WAREHOUSE: Final = f"s3://{BUCKET}/warehouse"

WORKERS: Final = 2
"""Workers of the Spark cluster, with one core each."""


@dataclass(frozen=True, slots=True)
class Passwords:
    """Random passwords of a home, stored with mode 600 and never shown."""

    postgres: str = field(repr=False)
    s3_access_key: str = field(repr=False)
    s3_secret_key: str = field(repr=False)
    spark: str = field(repr=False)
    catalog: str = field(repr=False)
    registry: str = field(repr=False)

    @property
    def keys(self) -> Keys:
        """Login of the S3 server."""
        return Keys(self.s3_access_key, self.s3_secret_key)


def ensure_passwords(home: Home) -> Passwords:
    """Return the home's passwords. Missing ones are generated: a home of an older version has fewer."""
    file = private_folder(home.production) / "passwords.json"
    with exclusive(home.production / ".lock"):
        passwords = _read(file) if file.is_file() else {}
        missing = [password.name for password in fields(Passwords) if password.name not in passwords]
        passwords |= {name: secrets.token_urlsafe(24) for name in missing}
        if missing:
            write_atomically(file, json.dumps(passwords), mode=PRIVATE_FILE)
    return Passwords(**passwords)


def settings_file(home: Home) -> Path:
    """Path of the profile's settings file."""
    return home.production / "settings.yaml"


def write_settings(home: Home) -> None:
    """Write the profile's settings file, and a private file with the values of its references."""
    text = files(__package__).joinpath(SETTINGS).read_text(encoding="utf-8")
    write_atomically(settings_file(home), text, mode=PRIVATE_FILE)
    write_atomically(home.production / "references.json", json.dumps(references(home)), mode=PRIVATE_FILE)


def references(home: Home) -> dict[str, str]:
    """Values of `${local:NAME}` in the profile's settings file, except `home` and `kafka`. Some are secrets."""
    passwords, kafka = ensure_passwords(home), kafka_access(home)
    return {
        "kafka_user": USER,
        "kafka_password": kafka.users[USER],
        "kafka_ca": str(kafka.ca),
        "catalog": rest_catalog.url(home),
        "catalog_user": rest_catalog.USER,
        "catalog_password": passwords.catalog,
        "registry": schema_registry.url(home),
        "registry_login": f"{schema_registry.USER}:{passwords.registry}",
        "s3": object_store.url(home),
        "s3_region": object_store.REGION,
        "s3_access_key": passwords.s3_access_key,
        "s3_secret_key": passwords.s3_secret_key,
        "spark": spark_cluster.url(home.ports.spark_master),
        "spark_secret": passwords.spark,
    }


def kafka_access(home: Home) -> Secured:
    """Users and certificates of the secured broker. The first call creates them."""
    from frazil.devstack.secured import secured  # it imports cryptography, which most commands don't need

    private_folder(home.production)
    with exclusive(home.production / ".kafka.lock"):  # two first calls at once would mix their certificates
        return secured(home.production / "kafka", home.ports.kafka_sasl, home.ports.kafka_ssl, (USER,))


def _read(file: Path) -> dict[str, str]:
    try:
        passwords = json.loads(file.read_text(encoding="utf-8"))
        Passwords(**dict.fromkeys((password.name for password in fields(Passwords)), "") | passwords)
    except (ValueError, TypeError) as error:
        raise STACK_FAILED.terminal(
            f"{file} can't be read", next_step="restore it: it has the passwords of the stack's data"
        ) from error
    return dict(passwords)
