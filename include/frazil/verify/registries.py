"""Schemas by their ids, asked of Schema Registries by confluent-kafka's own client, for this check alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from frazil.errors import Retryable, Terminal
from frazil.pipeline.settings.settings import RegistrySettings
from frazil.verify.values.native import Schema, UnjudgedError

_REFUSED = (401, 403)
_NOT_FOUND = 404


class Registries:
    """The registries of a project.

    Args:
        settings: How to reach them, by name.
    """

    def __init__(self, settings: Mapping[str, RegistrySettings]) -> None:
        self._settings = settings

    def __call__(self, name: str) -> Callable[[int], Schema]:
        """What knows the schemas of a registry.

        Raises:
            Terminal: The settings don't know it.
        """
        if name not in self._settings:
            known = ", ".join(sorted(self._settings)) or "none"
            raise Terminal(f"registry {name} is not in the settings file", next_step=f"known under registries: {known}")
        of = self._settings[name]
        client = SchemaRegistryClient({"url": of.url, **of.client_properties})
        return lambda number: _schema(client, name, number)


def _schema(client: SchemaRegistryClient, name: str, number: int) -> Schema:
    """A schema with all that it refers to.

    Raises:
        UnjudgedError: The registry does not have it, or does not show it.
        Retryable: It does not answer.
    """
    try:
        found = client.get_schema(number)
        references: dict[str, str] = {}
        _add(client, found.references or (), references)
    except SchemaRegistryError as error:
        if error.http_status_code in (*_REFUSED, _NOT_FOUND):
            raise UnjudgedError(f"registry {name} shows no schema {number}") from None
        raise Retryable(
            f"registry {name} does not give schema {number}: HTTP {error.http_status_code}", next_step="try again later"
        ) from None
    except OSError as error:
        raise Retryable(
            f"registry {name} does not answer: {type(error).__name__}", next_step="try again; if it stays, look at it"
        ) from None
    return found.schema_str or "", references


def _add(client: SchemaRegistryClient, references: list[SchemaReference] | tuple[()], found: dict[str, str]) -> None:
    """Add what is referred to: each after what it refers to itself."""
    for of in references:
        if of.name is not None and of.name not in found and of.subject is not None and of.version is not None:
            schema = client.get_version(of.subject, of.version).schema
            _add(client, schema.references or (), found)
            found[of.name] = schema.schema_str or ""
