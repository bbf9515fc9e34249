"""Reads schemas by id from Schema Registries, with confluent-kafka's own client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from frazil.error_codes import BAD_SETTING, REGISTRY_FAILED
from frazil.extras import require
from frazil.pipeline.settings.settings import RegistrySettings
from frazil.verify.values.native import Schema, UnjudgedError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient

_REFUSED = (401, 403)
_NOT_FOUND = 404


class Registries:
    """The registries of a project."""

    def __init__(self, settings: Mapping[str, RegistrySettings]) -> None:
        self._settings = settings

    def __call__(self, name: str) -> Callable[[int], Schema]:
        """The function that reads schemas of a registry by id.

        Raises:
            Terminal: The settings don't know it, or the client's libraries are not installed.
        """
        if name not in self._settings:
            known_names = ", ".join(sorted(self._settings)) or "none"
            raise BAD_SETTING.terminal(
                f"registry {name} is not in the settings file", next_step=f"known under registries: {known_names}"
            )
        require("registry", f"registry {name}")
        from confluent_kafka.schema_registry import SchemaRegistryClient

        registry = self._settings[name]
        client = SchemaRegistryClient({"url": registry.url, **registry.client_properties})
        return lambda number: _schema(client, name, number)


def _schema(client: SchemaRegistryClient, name: str, number: int) -> Schema:
    """A schema with all schemas that it refers to.

    Raises:
        UnjudgedError: The registry does not have it, or does not show it.
        Retryable: It does not answer.
    """
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    try:
        schema = client.get_schema(number)
        references: dict[str, str] = {}
        _add_references(client, schema.references or (), references)
    except SchemaRegistryError as error:
        if error.http_status_code in (*_REFUSED, _NOT_FOUND):
            raise UnjudgedError(f"registry {name} shows no schema {number}") from None
        raise REGISTRY_FAILED.retryable(
            f"registry {name} does not give schema {number}: HTTP {error.http_status_code}", next_step="try again later"
        ) from None
    except OSError as error:
        raise REGISTRY_FAILED.retryable(
            f"registry {name} does not answer: {type(error).__name__}",
            next_step="try again; if it persists, check its log",
        ) from None
    return schema.schema_str or "", references


def _add_references(
    client: SchemaRegistryClient, references: list[SchemaReference] | tuple[()], schemas: dict[str, str]
) -> None:
    """Add referenced schemas, each after the schemas that it refers to itself."""
    for reference in references:
        if (
            reference.name is not None
            and reference.name not in schemas
            and reference.subject is not None
            and reference.version is not None
        ):
            schema = client.get_version(reference.subject, reference.version).schema
            _add_references(client, schema.references or (), schemas)
            schemas[reference.name] = schema.schema_str or ""
