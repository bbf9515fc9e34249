"""Reads writer schemas from a Schema Registry, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from os import getpid
from threading import get_ident
from time import monotonic, sleep
from typing import Final, TypeVar, cast
from uuid import UUID

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry._sync.schema_registry_client import httpx
from confluent_kafka.schema_registry.error import SchemaRegistryError

from frazil.error_codes import REGISTRY_FAILED
from frazil.errors import Retryable, Terminal
from frazil.records.model.format import Framing, NamedSchema, SchemaKind, TooManyUnknownIds, WriterSchema
from frazil.registry.registry import (
    FOREIGN,
    NO_SCHEMA,
    GlueVersions,
    Registry,
    as_frazil,
    is_forbidden,
    is_missing,
    is_refused,
    translated,
)

MAX_ANSWER: Final = 16 << 20
"""Most bytes of one answer: several times the largest schema that can be used."""

_EXPANSION: Final = 1_000
"""How many times a compressed answer may grow. Compression is not requested, but a server may use it."""


class AnswerTooLarge(ValueError):
    """The registry sends more bytes than a schema can have."""


class _BoundedStream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, size: int, seconds: float) -> None:
        self._stream: Final = stream
        self._size: Final = size
        self._seconds: Final = seconds

    def __iter__(self) -> Iterator[bytes]:
        size, deadline = 0, monotonic() + self._seconds
        for chunk in self._stream:
            size += len(chunk)
            if size > self._size:
                raise AnswerTooLarge(f"the registry's answer has more than {self._size} bytes")
            if monotonic() > deadline:
                raise httpx.ReadTimeout(f"the answer is not whole after {self._seconds:.0f} s")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def bound_answers(client: SchemaRegistryClient, seconds: float) -> None:
    """Limit the answers to a client: at most `MAX_ANSWER` bytes, and `seconds` from their first byte."""
    session = client._rest_client.session  # noqa: SLF001  # the client takes no transport, and has no limits
    session.headers["Accept-Encoding"] = "identity"
    session.event_hooks = {"response": [partial(_bound, seconds)]}


def _bound(seconds: float, response: httpx.Response) -> None:
    is_compressed = response.headers.get("Content-Encoding", "identity") != "identity"
    size = MAX_ANSWER // _EXPANSION if is_compressed else MAX_ANSWER
    stream = cast("httpx.SyncByteStream", response.stream)  # the client is not asynchronous
    response.stream = _BoundedStream(stream, size, seconds)


T = TypeVar("T")

Version = tuple[str, int]
"""A subject, and the number of one of its versions."""

MAX_ID: Final = (1 << 31) - 1
"""Ids are positive 32-bit integers. Servers answer a larger id as if the address were wrong."""

MAX_CACHED_SCHEMAS: Final = 1_000
"""Most schemas in the cache: a topic has a handful of writer schemas. With one more, the whole cache is emptied."""

UNKNOWN_SECONDS: Final = 10.0
"""After so many seconds an id without a schema is requested again, so that a schema that was registered late is found soon."""

MAX_UNKNOWN: Final = 100
"""With so many ids without a schema within a minute, one further id is requested per second: producers may write any number."""

_UNKNOWN_WINDOW: Final = 60.0

MAX_REFERENCES: Final = 200
"""Most references of one schema, also indirect ones. Each is a request."""

EARLIER_VERSIONS: Final = 20
"""Most versions before a schema, in one subject, that are requested for the former names of fields: the latest ones."""

EARLIER_SUBJECTS: Final = 5
"""Most subjects whose earlier versions are requested: many topics may share a schema, and a batch must come to an end."""

_RETRIES: Final = 1
_REQUEST_SECONDS: Final = 16.0
"""Most seconds of one request: for all servers and tries, to connect and to wait for the answer. A schema takes milliseconds, and
a registry that does not answer must not delay a batch by more than a batch takes."""

_CALL_SECONDS: Final = 12.0
"""After so many seconds no further request for a schema begins, so that it is there within 30 s."""

_EARLIER_SECONDS: Final = 60.0
"""The same for its earlier versions. These requests are repeated, because a batch without the former names would land a renamed
field in another column than the batch before."""

_PAUSE_SECONDS: Final = 0.5

_VERSIONS: Final = "../../registry/v3/search/versions"
"""Path of Apicurio's own API from `/apis/ccompat/v7`, its API of Confluent's kind, which the settings name."""

_DEFAULTS: Final[dict[str, float]] = {"max.retries": _RETRIES, "retries.wait.ms": 200, "retries.max.wait.ms": 1_000}


class RegistrySchemas:
    """Reads and caches schemas of a registry; a `SchemaSource`. It connects at first use, and can be pickled for a worker."""

    def __init__(self, registry: Registry, clock: Callable[[], float] = monotonic) -> None:
        self.registry: Final = registry
        self.framing: Framing = registry.framing
        self._clock: Final = clock
        self._known: Final[dict[int | UUID, WriterSchema]] = {}
        self._versions: Final[dict[Version, Schema]] = {}
        self._unknown: Final[dict[int | UUID, tuple[float, WriterSchema | None]]] = {}
        self._last_request_of_unknown = 0.0
        self._client: SchemaRegistryClient | None = None
        self._glue: GlueVersions | None = None

    def __repr__(self) -> str:
        return f"RegistrySchemas({self.registry!r})"

    def __reduce__(self) -> tuple[Callable[[Registry], RegistrySchemas], tuple[Registry]]:
        return shared_schemas, (self.registry,)

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return a schema, or None if the registry has none with this id. References that the registry lacks are left out.

        Schemas are cached without an end; ids without a schema, and refused schemas, for 10 seconds.

        Raises:
            TooManyUnknownIds: Within a minute 100 ids had no schema.
            Retryable: No answer came within 30 seconds, or the registry is not available. Earlier versions of a Protobuf schema are
                requested for a minute more, and the next call continues where this one stopped.
            Terminal: The server refuses the credentials, is not a registry, or has an untrusted certificate.
        """
        if isinstance(schema_id, int) and schema_id > MAX_ID:
            return None
        if schema_id in self._known:
            return self._known[schema_id]
        if max(len(self._known), len(self._versions)) >= MAX_CACHED_SCHEMAS:
            self.close()
        if self._is_unknown(schema_id):
            return self._unknown[schema_id][1]
        writer, is_complete = self._request(schema_id)
        if writer is not None and is_complete and not writer.refusal:
            self._known[schema_id] = writer
        else:
            self._unknown[schema_id] = (self._clock(), writer)
        return writer

    def _request(self, schema_id: int | UUID) -> tuple[WriterSchema | None, bool]:
        """Return a schema, and whether the registry has everything that it refers to."""
        if self.framing == "glue":
            return (self._opened_glue().schema(schema_id) if isinstance(schema_id, UUID) else None), True
        request = _SchemaRequest(
            self.registry, self._opened(), self._clock, f"asking for schema {schema_id}", self._versions
        )
        return request.schema(schema_id), request.is_complete

    def _is_unknown(self, schema_id: int | UUID) -> bool:
        """Return whether an id had no schema moments ago."""
        if not self._unknown:
            return False
        now = self._clock()
        for old_id in [key for key, (requested_at, _) in self._unknown.items() if now - requested_at > _UNKNOWN_WINDOW]:
            del self._unknown[old_id]
        if schema_id in self._unknown:
            return now - self._unknown[schema_id][0] <= UNKNOWN_SECONDS
        if len(self._unknown) >= MAX_UNKNOWN:
            if now - self._last_request_of_unknown < 1:
                raise TooManyUnknownIds
            self._last_request_of_unknown = now
        return False

    def ask(self) -> None:
        """Request the registry's schema types, to check that it answers and is a Schema Registry."""
        if self.framing == "glue":
            self._opened_glue().ask()
            return
        with translated(self.registry, "asking whether it answers"):
            self._opened().get_schema_types()
            if self.framing == "apicurio-global-id":
                self._require_search()

    def _require_search(self) -> None:
        try:
            _content_id(self.registry, self._opened(), 1)
        except SchemaRegistryError as error:
            if error.error_code != NO_SCHEMA:  # a new registry has no version 1
                raise

    def close(self) -> None:
        """Forget the schemas and end the connection; the next request opens another one."""
        self._known.clear()
        self._versions.clear()
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._glue is not None:
            self._glue.close()
            self._glue = None

    def _opened(self) -> SchemaRegistryClient:
        if self._client is None:
            with translated(self.registry, "opening the client"):
                self._client = SchemaRegistryClient(configuration(self.registry))
                bound_answers(self._client, _REQUEST_SECONDS)
        return self._client

    def _opened_glue(self) -> GlueVersions:
        if self._glue is None:
            self._glue = GlueVersions(self.registry)
        return self._glue


_SHARED: Final[dict[tuple[object, ...], RegistrySchemas]] = {}


def shared_schemas(registry: Registry) -> RegistrySchemas:
    """Return the schemas that all batches and tasks of a process share: each is requested once, and unknown ids have one limit.

    Each process and each thread has its own, because the client is not thread-safe.
    """
    key = (getpid(), get_ident(), registry.name, registry.url, registry.framing, *sorted(registry.properties.items()))
    return _SHARED.setdefault(key, RegistrySchemas(registry))


def configuration(registry: Registry) -> dict[str, str | float]:
    """Return the configuration of confluent-kafka's client: the registry's settings and a time limit."""
    timeout = _REQUEST_SECONDS / (2 * (_RETRIES + 1) * len(registry.urls))
    return {**_DEFAULTS, "timeout": timeout, **registry.properties, "url": registry.url}


class _SchemaRequest:
    """The request for one schema, with those for the schemas that it refers to and for its earlier versions.

    Attributes:
        is_complete: Whether the registry has everything that the schema refers to.
    """

    def __init__(
        self,
        registry: Registry,
        client: SchemaRegistryClient,
        clock: Callable[[], float],
        doing: str,
        versions: dict[Version, Schema],
    ) -> None:
        self._registry: Final = registry
        self._client: Final = client
        self._clock: Final = clock
        self._doing: Final = doing
        self._versions: Final = versions
        self._seconds = _CALL_SECONDS
        self._deadline = clock() + _CALL_SECONDS
        self._refusal = ""
        self.is_complete = True

    def schema(self, schema_id: int | UUID) -> WriterSchema | None:
        """Return the schema, or None if the registry does not have it."""
        schema = self._schema_or_none(lambda: self._by_id(schema_id))
        if schema is None:
            return WriterSchema("AVRO", "", refusal=self._refusal) if self._refusal else None
        writer = self._writer(schema)
        if writer.kind != "PROTOBUF" or not isinstance(schema_id, int):
            return writer
        self._seconds, self._deadline = _EARLIER_SECONDS, self._clock() + _EARLIER_SECONDS
        return replace(writer, earlier=self._earlier(schema_id, writer))

    def _writer(self, schema: Schema) -> WriterSchema:
        texts: dict[str, str] = {}
        names: set[str] = set()
        self._collect(schema, texts, names)
        references = tuple(NamedSchema(name, text) for name, text in texts.items())
        refusal = f"it refers to more than {MAX_REFERENCES} schemas" if len(names) > MAX_REFERENCES else ""
        return WriterSchema(cast("SchemaKind", schema.schema_type), _text(schema), references, refusal=refusal)

    def _earlier(self, schema_id: int, latest: WriterSchema) -> tuple[WriterSchema, ...]:
        """Return the versions before a schema, in the subjects that have it; none without permission to see them."""
        earlier: dict[WriterSchema, None] = {}
        is_complete = self.is_complete
        versions = self._list_or_empty(lambda: _subject_versions(self._client, schema_id))
        for subject, version in [each for each in versions if each[1] > 1][:EARLIER_SUBJECTS]:
            numbers = self._list_or_empty(lambda s=subject: self._client.get_versions(s, deleted=True))  # type: ignore[misc]
            before = sorted((number for number in numbers if number < version), reverse=True)
            for number in before[:EARLIER_VERSIONS]:
                schema = self._version(subject, number)
                if schema is not None:
                    earlier.setdefault(self._writer(schema))
        self.is_complete = is_complete  # an earlier version with a missing reference is useless, now and later
        return tuple(writer for writer in earlier if writer != latest)

    def _list_or_empty(self, request: Callable[[], list[T]]) -> list[T]:
        """Return the answer to a request, or nothing if the registry does not have it or refuses it."""
        with translated(self._registry, self._doing):
            try:
                return self._in_time(request)
            except SchemaRegistryError as error:
                if is_missing(error) or is_refused(error):
                    return []
                raise

    def _by_id(self, schema_id: int | UUID) -> Schema:
        if isinstance(schema_id, UUID):
            return self._client.get_schema_by_guid(str(schema_id))
        if self._registry.framing == "apicurio-global-id":
            schema_id = _content_id(self._registry, self._client, schema_id)
        return self._client.get_schema(schema_id)

    def _collect(self, schema: Schema, texts: dict[str, str], names: set[str]) -> None:
        """Add the texts of the schemas that a schema refers to, dependencies first; of two with one name the first counts.

        `names` are those of all references, also missing ones.
        """
        for reference in schema.references or ():
            name, subject, version = reference.name, reference.subject, reference.version
            if name is None or subject is None or version is None or name in names or len(names) > MAX_REFERENCES:
                continue
            names.add(name)
            if len(names) > MAX_REFERENCES:
                return
            referenced = self._version(subject, version)
            if referenced is None:
                self.is_complete = False
            else:
                self._collect(referenced, texts, names)
                texts[name] = _text(referenced)

    def _version(self, subject: str, number: int) -> Schema | None:
        if (subject, number) not in self._versions:
            # `deleted`: the version may be deleted, while values that were written with it still exist.
            schema = self._schema_or_none(lambda: self._client.get_version(subject, number, deleted=True).schema)
            if schema is None:
                return None
            self._versions[subject, number] = schema
        return self._versions[subject, number]

    def _schema_or_none(self, request: Callable[[], Schema]) -> Schema | None:
        """Return the answer to a request, or None if the registry does not have the schema or refuses it (`_refusal`)."""
        with translated(self._registry, self._doing):
            try:
                schema = self._in_time(request)
            except AnswerTooLarge as error:
                self._refusal = str(error)
                return None
            except SchemaRegistryError as error:
                if not is_missing(error) and not is_forbidden(error):
                    raise
                if error.error_code != NO_SCHEMA:
                    # If this request succeeds, the registry refuses only one schema: no reason to stop the pipeline.
                    self._in_time(self._client.get_schema_types)
                if is_forbidden(error):
                    self._refusal = "the registry does not show it to this pipeline"
                return None
            _text(schema)
            return schema

    def _in_time(self, request: Callable[[], T]) -> T:
        """Return the answer to a request, unless the deadline is over. Repeat requests for earlier versions."""
        while True:
            if self._clock() > self._deadline:
                raise REGISTRY_FAILED.retryable(
                    f"{self._registry}: {self._doing}: took over {self._seconds:.0f} s",
                    next_step="look at the registry's load",
                )
            try:
                return request()
            except FOREIGN as error:
                if not self._may_retry(error):
                    raise
            sleep(_PAUSE_SECONDS)

    def _may_retry(self, error: BaseException) -> bool:
        """Return whether to retry a request for earlier versions: the result must not depend on how busy the registry is."""
        is_in_time = self._clock() + _PAUSE_SECONDS <= self._deadline
        is_busy = isinstance(as_frazil(error, self._registry, self._doing), Retryable)
        return self._seconds == _EARLIER_SECONDS and is_in_time and is_busy


def _content_id(registry: Registry, client: SchemaRegistryClient, global_id: int) -> int:
    """Return the id of a version's content, which is its schema id in Apicurio's API of Confluent's kind.

    Raises:
        SchemaRegistryError: There is no such version.
        Terminal: The server has no such search, or its API of Confluent's kind takes global ids.
    """
    try:
        answer = client._rest_client.get(_VERSIONS, {"globalId": global_id})  # noqa: SLF001  # it knows addresses and logins
    except SchemaRegistryError as error:
        if not is_missing(error):
            raise
        raise _no_search(registry) from error
    # A server that does not know the parameter ignores it, and returns other versions.
    version = next((version for version in answer["versions"] if version["globalId"] == global_id), None)
    if version is None and answer["versions"]:
        raise _no_search(registry)
    if version is None:
        raise SchemaRegistryError(HTTPStatus.NOT_FOUND, NO_SCHEMA, f"no version with global id {global_id}")
    content_id = int(version["contentId"])
    if content_id != global_id and not _has_version(client, content_id, version["artifactId"], version["version"]):
        raise REGISTRY_FAILED.terminal(
            f"{registry}: its API for Confluent's clients takes global ids (APICURIO_CCOMPAT_LEGACY_ID_MODE_ENABLED): content id"
            f" {content_id} is another schema there",
            next_step=f"set framing: apicurio-content-id in registries.{registry.name} of the settings; Frazil then looks schemas up"
            " by the ids in the records",
        )
    return content_id


def _has_version(client: SchemaRegistryClient, content_id: int, artifact: str, number: str) -> bool:
    """Return whether, in the API of Confluent's kind, the schema with an id is a version that Apicurio's own API returned."""
    try:
        versions = _subject_versions(client, content_id)
    except SchemaRegistryError as error:
        if not is_missing(error):
            raise
        return False
    # A version may have a name in place of a number, and a subject its group in front.
    return any(
        subject.rpartition(":")[2] == artifact and (not number.isdecimal() or listed == int(number))
        for subject, listed in versions
    )


def _no_search(registry: Registry) -> Terminal:
    return REGISTRY_FAILED.terminal(
        f"{registry}: this server can't look up versions by global id; Apicurio 3 can",
        next_step="let producers write content ids (apicurio.registry.use-id: contentId), or let the server give global ids to"
        f" Confluent's clients, and set framing: apicurio-content-id in registries.{registry.name} of the settings",
    )


def _subject_versions(client: SchemaRegistryClient, schema_id: int) -> list[Version]:
    """Return the subjects that have a schema, each with the schema's version there, highest version first."""
    versions = [
        (version.subject, version.version)
        for version in client.get_schema_versions(schema_id, deleted=True)
        if version.subject is not None and version.version is not None
    ]
    return sorted(versions, key=lambda version: (-version[1], version[0]))


def _text(schema: Schema) -> str:
    if not isinstance(schema.schema_str, str):
        raise TypeError("the answer holds no schema")
    return schema.schema_str
