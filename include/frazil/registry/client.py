"""Writer schemas out of a Schema Registry, asked for once each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Final, TypeVar, cast
from uuid import UUID

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from frazil.errors import Retryable, Terminal
from frazil.records.formats.port import NamedSchema, SchemaKind, WriterSchema
from frazil.registry.faults import NO_SCHEMA, is_missing, is_refused, translated
from frazil.registry.registry import Registry

T = TypeVar("T")

MAX_ID: Final = (1 << 31) - 1
"""Ids are positive 32-bit integers. Servers answer a larger one like an address that they don't know."""

KEPT_SCHEMAS: Final = 1_000
"""Bounds the memory: a topic has a handful of writer schemas. With one more, all are forgotten and asked for again."""

EARLIER_VERSIONS: Final = 20
"""Versions before a schema, the last ones, that are asked for the names that its fields had."""

_RETRIES: Final = 1
_REQUEST_SECONDS: Final = 16.0
"""Bounds one request: of each server, for each try, a connection and an answer are waited for. A schema is served in
milliseconds; a registry that does not answer must not hold a batch for longer than a batch takes."""

_CALL_SECONDS: Final = 12.0
"""After this long no further request begins, so that a call ends within 30 s."""

_DEFAULTS: Final[dict[str, float]] = {"max.retries": _RETRIES, "retries.wait.ms": 200, "retries.max.wait.ms": 1_000}
_NUMBERS: Final = frozenset({*_DEFAULTS, "timeout", "cache.capacity", "cache.latest.ttl.sec"})
"""Properties that the client wants as numbers; the settings file holds texts."""


class RegistrySchemas:
    """Knows the schemas of a registry; a `SchemaSource`. Connects when it is first asked, and can be sent to a worker.

    Args:
        registry: Where the schemas are.
        clock: Seconds that only go up.
    """

    def __init__(self, registry: Registry, clock: Callable[[], float] = monotonic) -> None:
        self.registry: Final = registry
        self._clock: Final = clock
        self._known: Final[dict[int | UUID, WriterSchema]] = {}
        self._client: SchemaRegistryClient | None = None

    def __repr__(self) -> str:
        return f"RegistrySchemas({self.registry!r})"

    def __reduce__(self) -> tuple[Callable[[Registry], RegistrySchemas], tuple[Registry]]:
        return RegistrySchemas, (self.registry,)

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return a schema, or None if the registry has none of this id. Only what was found is kept.

        What it refers to and the registry has not is left out of the references.

        Raises:
            Retryable: Nobody answered within 30 seconds, or the registry is not available.
            Terminal: It refuses the credentials, is no registry, or can't be trusted.
        """
        if isinstance(schema_id, int) and schema_id > MAX_ID:
            return None
        if schema_id not in self._known and len(self._known) >= KEPT_SCHEMAS:
            self.close()
        if schema_id in self._known:
            return self._known[schema_id]
        asking = _Asking(self.registry, self._opened(), self._clock, f"asking for schema {schema_id}")
        found = asking.schema(schema_id)
        if found is not None and asking.complete:
            self._known[schema_id] = found
        return found

    def close(self) -> None:
        """Forget the schemas and end the connection; the next question opens another."""
        self._known.clear()
        if self._client is not None:
            self._client.close()
            self._client = None

    def _opened(self) -> SchemaRegistryClient:
        if self._client is None:
            with translated(self.registry, "opening the client"):
                self._client = SchemaRegistryClient(configuration(self.registry))
        return self._client


def configuration(registry: Registry) -> dict[str, str | float]:
    """Return what confluent-kafka's client is opened with: what the registry says, and an end to waiting.

    Raises:
        Terminal: A property that must be a number is none.
    """
    timeout = _REQUEST_SECONDS / (2 * (_RETRIES + 1) * len(registry.urls))
    given = {
        key: _number(registry, key, value) if key in _NUMBERS else value for key, value in registry.properties.items()
    }
    return {**_DEFAULTS, "timeout": timeout, **given, "url": registry.url}


def _number(registry: Registry, key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError as e:
        raise Terminal(
            f"{registry}: property {key}: expected a number, found {text!r}",
            next_step=f"correct it in registries.{registry.name}.properties of the settings",
        ) from e


class _Asking:
    """One question, with the further ones that its answer leads to.

    Attributes:
        complete: Whether everything that was referred to was found.
    """

    def __init__(
        self, registry: Registry, client: SchemaRegistryClient, clock: Callable[[], float], doing: str
    ) -> None:
        self._registry: Final = registry
        self._client: Final = client
        self._clock: Final = clock
        self._doing: Final = doing
        self._deadline: Final = clock() + _CALL_SECONDS
        self.complete = True

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Ask for a schema and for what it refers to."""
        found = self._found(lambda: self._by_id(schema_id))
        if found is None:
            return None
        writer = self._writer(found)
        if writer.kind != "PROTOBUF" or not isinstance(schema_id, int):
            return writer
        return replace(writer, earlier=self._earlier(schema_id, writer))

    def _writer(self, found: Schema) -> WriterSchema:
        references: dict[str, str] = {}
        self._collect(found, references, set())
        named = tuple(NamedSchema(name, text) for name, text in references.items())
        return WriterSchema(cast("SchemaKind", found.schema_type), _text(found), named)

    def _earlier(self, schema_id: int, now: WriterSchema) -> tuple[WriterSchema, ...]:
        """Ask for the versions before a schema, of all subjects that have it. Who may not see them is told of none."""
        found: dict[WriterSchema, None] = {}
        complete = self.complete
        for subject, version in self._listed(lambda: _places(self._client, schema_id)):
            known = self._listed(lambda s=subject: self._client.get_versions(s, deleted=True))  # type: ignore[misc]
            before = sorted((of for of in known if of < version), reverse=True)
            for number in before[:EARLIER_VERSIONS]:
                schema = self._found(lambda s=subject, v=number: self._client.get_version(s, v, deleted=True).schema)  # type: ignore[misc]
                if schema is not None:
                    found.setdefault(self._writer(schema))
        self.complete = complete  # an earlier version that refers to what is gone tells nothing, now and later
        return tuple(of for of in found if of != now)

    def _listed(self, ask: Callable[[], list[T]]) -> list[T]:
        with translated(self._registry, self._doing):
            try:
                return self._in_time(ask)
            except SchemaRegistryError as e:
                if is_missing(e) or is_refused(e):
                    return []
                raise

    def _by_id(self, schema_id: int | UUID) -> Schema:
        if isinstance(schema_id, UUID):
            return self._client.get_schema_by_guid(str(schema_id))
        return self._client.get_schema(schema_id)

    def _collect(self, schema: Schema, into: dict[str, str], begun: set[str]) -> None:
        """Add what a schema refers to, each after what it refers to itself; of two by one name the first counts."""
        for reference in schema.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            if name is None or subject is None or version is None or name in begun:
                continue
            begun.add(name)
            # A version may be deleted while values written with it live on: hence `deleted`.
            found = self._found(lambda s=subject, v=version: self._client.get_version(s, v, deleted=True).schema)  # type: ignore[misc]
            if found is None:
                self.complete = False
            else:
                self._collect(found, into, begun)
                into[name] = _text(found)

    def _found(self, ask: Callable[[], Schema]) -> Schema | None:
        with translated(self._registry, self._doing):
            try:
                found = self._in_time(ask)
            except SchemaRegistryError as e:
                if not is_missing(e):
                    raise
                if e.error_code != NO_SCHEMA:
                    self._in_time(self._client.get_schema_types)
                return None
            _text(found)
            return found

    def _in_time(self, ask: Callable[[], T]) -> T:
        if self._clock() > self._deadline:
            raise Retryable(
                f"{self._registry}: {self._doing}: took over {_CALL_SECONDS:.0f} s",
                next_step="look at the registry's load",
            )
        return ask()


def _places(client: SchemaRegistryClient, schema_id: int) -> list[tuple[str, int]]:
    """Return the subjects that have a schema, and as which version."""
    found = client.get_schema_versions(schema_id, deleted=True)
    return sorted((of.subject, of.version) for of in found if of.subject is not None and of.version is not None)


def _text(schema: Schema) -> str:
    if not isinstance(schema.schema_str, str):
        raise TypeError("the answer holds no schema")
    return schema.schema_str
