"""What a registry that does not answer as it should means for a batch."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from time import monotonic
from uuid import UUID

import pytest

from frazil.errors import FrazilError, Retryable, Terminal
from frazil.records.model.format import NamedSchema, TooManyUnknownIds, WriterSchema
from frazil.registry.client import (
    MAX_ANSWER,
    MAX_CACHED_SCHEMAS,
    MAX_REFERENCES,
    MAX_UNKNOWN,
    UNKNOWN_SECONDS,
    RegistrySchemas,
    shared_schemas,
)
from frazil.registry.registry import Registry
from frazil.runtime.process import until

FreePorts = Callable[[int], list[int]]


@dataclass
class Scripted:
    """A server that gives answers (status, body) by path, else `otherwise`, and notes what it was asked.

    Attributes:
        busy: By path, how many times it is too busy first.
        headers: What stands before each body.
    """

    answers: dict[str, tuple[int, str]] = field(default_factory=dict)
    otherwise: tuple[int, str] = (200, "{}")
    asked: list[str] = field(default_factory=list)
    credentials: list[str | None] = field(default_factory=list)
    busy: dict[str, int] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    hold: Event | None = None
    port: int = 0

    def answer_to(self, body: bytes) -> tuple[int, str] | None:  # noqa: ARG002 - a subclass's
        """What a request with this body gets, if not by its path."""
        return None

    def registry(self, **properties: str | float) -> Registry:
        """The server as the product knows it."""
        return Registry("main", f"http://127.0.0.1:{self.port}", {"retries.wait.ms": 1, **properties})


@contextmanager
def served(script: Scripted, tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """Run the server on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            script.asked.append(path)
            script.credentials.append(self.headers.get("Authorization"))
            if script.hold is not None:
                script.hold.wait(60)
                return
            asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = script.answer_to(asked) or script.answers.get(path, script.otherwise)
            if script.busy.get(path, 0):
                script.busy[path] -= 1
                status, body = 503, ""
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **script.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(ConnectionError):  # who reads has had enough
                self.wfile.write(body.encode())

        do_POST = do_GET  # noqa: N815 - the base's name

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base's name)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    script.port = server.server_address[1]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield script
    finally:
        if script.hold is not None:
            script.hold.set()
        server.shutdown()
        thread.join()
        server.server_close()


def schema(text: str = '"int"', *references: tuple[str, str, int]) -> tuple[int, str]:
    """The answer that holds a schema."""
    listed = [{"name": name, "subject": subject, "version": version} for name, subject, version in references]
    return 200, json.dumps({"schema": text, "references": listed})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((401, '{"error_code": 401, "message": "who are you"}'), Terminal),
        ((403, '{"error_code": 40301, "message": "not you"}'), Terminal),
        ((404, "<html>no such page</html>"), Terminal),
        ((404, '{"detail": "no such page"}'), Terminal),
        ((302, ""), Terminal),
        ((400, "You speak HTTP to an HTTPS port"), Terminal),
        ((200, "<html>sign in</html>"), Terminal),
        ((200, "[]"), Terminal),
        ((200, "{}"), Terminal),
        ((200, ""), Terminal),
        ((408, ""), Retryable),
        ((429, '{"error_code": 42901, "message": "too many"}'), Retryable),
        ((500, '{"error_code": 50001, "message": "store"}'), Retryable),
        ((500, "[]"), Retryable),
        ((503, "<html>back soon</html>"), Retryable),
        ((504, ""), Retryable),
    ],
)
def test_answer_decides_who_must_act(answer: tuple[int, str], expected: type[FrazilError]) -> None:
    """Taken for an unknown id, any of these would turn good records into dead letters."""
    with (
        served(Scripted(otherwise=answer)) as script,
        closing(RegistrySchemas(script.registry())) as schemas,
        pytest.raises(expected) as caught,
    ):
        schemas.schema(1)

    assert "'main'" in caught.value.message
    assert caught.value.next_step


def test_refused_credentials_are_not_shown() -> None:
    """The message goes to logs."""
    script = Scripted(otherwise=(401, '{"error_code": 401, "message": "me:hunter2 is nobody"}'))
    with (
        served(script),
        closing(RegistrySchemas(script.registry(**{"basic.auth.user.info": "me:hunter2"}))) as schemas,
        pytest.raises(Terminal) as caught,
    ):
        schemas.schema(1)

    assert script.credentials == ["Basic bWU6aHVudGVyMg=="]
    assert "hunter2" not in str(caught.value)


def test_registry_that_is_down_is_reported_quickly(free_ports: FreePorts) -> None:
    """A batch must hear that it can't be decoded now, long before its task is thought dead."""
    registry = Registry("main", f"http://127.0.0.1:{free_ports(1)[0]}")
    began = monotonic()

    with closing(RegistrySchemas(registry)) as schemas, pytest.raises(Retryable, match="refused"):
        schemas.schema(1)

    assert monotonic() - began < 5


def test_a_registry_that_is_silent_is_not_waited_for_for_ever() -> None:
    """The client has no time limit of its own."""
    with (
        served(Scripted(hold=Event())) as script,
        closing(RegistrySchemas(script.registry(timeout=1))) as schemas,
    ):
        with pytest.raises(Retryable):
            schemas.schema(1)
        assert until(lambda: len(script.asked) >= 2, 30)

    assert len(script.asked) == 2, "once more, and no more"


def test_many_slow_answers_are_not_waited_for_together() -> None:
    """Each reference is a request of its own: a slow registry would hold a batch for as many times as it may take."""
    clock = iter([0.0, 1.0, 11.0, 13.0])  # the beginning, then before each request
    with (
        served(Scripted(DIAMOND)) as script,
        closing(RegistrySchemas(script.registry(), clock.__next__)) as schemas,
        pytest.raises(Retryable, match="took over 12 s"),
    ):
        schemas.schema(1)

    assert script.asked == ["/schemas/ids/1", "/subjects/l/versions/1"]


def test_the_next_server_is_asked_when_one_is_down(free_ports: FreePorts) -> None:
    """Several addresses are given so that one may fail."""
    with served(Scripted(otherwise=schema())) as script:
        url = f"http://127.0.0.1:{free_ports(1)[0]},http://127.0.0.1:{script.port}"
        with closing(RegistrySchemas(Registry("main", url, {"retries.wait.ms": 1}))) as schemas:
            assert schemas.schema(1) is not None


def test_a_server_that_nobody_vouches_for_is_not_trusted(server_tls: ssl.SSLContext) -> None:
    """Trying again would never help, and going on would hand credentials to a stranger."""
    with served(Scripted(otherwise=schema()), server_tls) as script:
        registry = Registry("main", f"https://127.0.0.1:{script.port}", {"retries.wait.ms": 1})
        with closing(RegistrySchemas(registry)) as schemas, pytest.raises(Terminal, match="no trusted connection"):
            schemas.schema(1)

    assert script.asked == []


def test_a_server_whose_certificate_is_named_is_trusted(server_tls: ssl.SSLContext, certificate: str) -> None:
    """The way that most registries inside a company are reached."""
    with served(Scripted(otherwise=schema()), server_tls) as script:
        registry = Registry("main", f"https://127.0.0.1:{script.port}", {"ssl.ca.location": certificate})
        with closing(RegistrySchemas(registry)) as schemas:
            assert schemas.schema(1) is not None


def test_a_schema_is_asked_for_once() -> None:
    """Every batch asks for the same few ids."""
    with served(Scripted(otherwise=schema())) as script, closing(RegistrySchemas(script.registry())) as schemas:
        assert schemas.schema(1) == schemas.schema(1)

    assert script.asked == ["/schemas/ids/1"]


def test_a_schema_is_found_by_its_guid() -> None:
    """Newer serialisers name schemas by GUID, which not every server knows."""
    guid = UUID("89791762-2336-4186-9674-299b90a802e2")
    script = Scripted({f"/schemas/guids/{guid}": schema('"long"')})
    with served(script), closing(RegistrySchemas(script.registry())) as schemas:
        decoded_schema = schemas.schema(guid)
        again = schemas.schema(guid)

    assert decoded_schema == again == WriterSchema("AVRO", '"long"')
    assert script.asked == [f"/schemas/guids/{guid}"]


def test_memory_for_schemas_has_an_end() -> None:
    """A topic whose producers register a schema per run must not fill a worker's memory."""
    with served(Scripted(otherwise=schema())) as script, closing(RegistrySchemas(script.registry())) as schemas:
        for number in range(MAX_CACHED_SCHEMAS + 2):
            schemas.schema(number)
        schemas.schema(0)
        schemas.schema(MAX_CACHED_SCHEMAS)

    assert script.asked.count("/schemas/ids/0") == 2
    assert script.asked.count(f"/schemas/ids/{MAX_CACHED_SCHEMAS}") == 1


DIAMOND = {
    "/schemas/ids/1": schema("top", ("left", "l", 1), ("right", "r", 1)),
    "/subjects/l/versions/1": schema("left", ("base", "b", 1)),
    "/subjects/r/versions/1": schema("right", ("base", "b", 1), ("left", "l", 1)),
    "/subjects/b/versions/1": schema("base"),
}
MISSING = (404, '{"error_code": 40401, "message": "no such subject"}')


def test_schema_referenced_twice_comes_once_and_first() -> None:
    """A name defined twice is an error to Avro and Protobuf."""
    with served(Scripted(DIAMOND)) as script, closing(RegistrySchemas(script.registry())) as schemas:
        first_schema = schemas.schema(1)

    assert first_schema is not None
    assert first_schema.references == tuple(NamedSchema(name, name) for name in ("base", "left", "right"))


def test_missing_reference_is_left_out_and_asked_for_again() -> None:
    """Its records are dead letters for as long as it is gone; that is no reason to stop all others."""
    answers, now = {**DIAMOND, "/subjects/b/versions/1": MISSING}, [0.0]
    with (
        served(Scripted(answers)) as script,
        closing(RegistrySchemas(script.registry(), lambda: now[0])) as schemas,
    ):
        second_schema = schemas.schema(1)
        script.answers["/subjects/b/versions/1"] = DIAMOND["/subjects/b/versions/1"]
        now[0] += UNKNOWN_SECONDS + 1
        back = schemas.schema(1)

    assert second_schema is not None
    assert back is not None
    assert [one.name for one in second_schema.references] == ["left", "right"]
    assert [one.name for one in back.references] == ["base", "left", "right"]


NOT_FOUND = (404, '{"error_code": 40403, "message": "no such schema"}')


def test_batches_of_a_process_keep_to_one_limit_of_unknown_ids() -> None:
    """Small batches follow each other within the minute; what one of them closes, the next one opens again."""
    requests: list[int] = []
    with served(Scripted({"/schemas/ids/1": schema()}, otherwise=NOT_FOUND)) as script:
        shared_schemas(script.registry()).schema(1)
        shared_schemas(script.registry()).close()
        for batch in range(11):
            schemas = shared_schemas(script.registry())
            assert schemas.schema(1) is not None
            for number in range(100):
                with suppress(TooManyUnknownIds):
                    schemas.schema(1_000 + 100 * batch + number)
            requests.append(len(script.asked))
        schemas.close()

    assert requests[0] == 2 + MAX_UNKNOWN
    assert requests[-1] < requests[0] + 20  # one in a second


def test_a_flood_of_unknown_ids_is_no_flood_of_requests() -> None:
    """Anyone may write ids that no registry gave; a schema that comes late is found all the same."""
    now = [0.0]
    with (
        served(Scripted({"/schemas/ids/1": schema()}, otherwise=NOT_FOUND)) as script,
        closing(RegistrySchemas(script.registry(), lambda: now[0])) as schemas,
    ):
        assert schemas.schema(1) is not None
        for _ in range(2):
            for number in range(1_000, 1_000 + MAX_UNKNOWN):
                assert schemas.schema(number) is None
        with pytest.raises(TooManyUnknownIds):
            schemas.schema(7)
        assert schemas.schema(1) is not None
        assert len(script.asked) == 1 + MAX_UNKNOWN

        script.answers["/schemas/ids/1000"] = schema('"long"')
        now[0] += UNKNOWN_SECONDS + 1
        assert schemas.schema(1_000) is not None
        now[0] += 60
        assert schemas.schema(7) is None


def test_a_schema_that_is_not_for_this_pipeline_stops_no_other() -> None:
    """Whoever writes another team's id makes a dead letter; credentials that open nothing at all need a person."""
    answers = {"/schemas/ids/1": schema(), "/schemas/types": (200, '["AVRO"]')}
    forbidden = (403, '{"error_code": 40301, "message": "not you"}')
    with (
        served(Scripted(answers, otherwise=forbidden)) as script,
        closing(RegistrySchemas(script.registry())) as schemas,
    ):
        refused = schemas.schema(2)
        assert refused is not None
        assert refused.refusal == "the registry does not show it to this pipeline"
        assert schemas.schema(1) == WriterSchema("AVRO", '"int"')


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_an_answer_without_end_makes_a_dead_letter(coding: str) -> None:
    """A schema of a gigabyte must not fill a worker's memory, nor stop a pipeline."""
    script = Scripted({"/schemas/ids/1": (200, "x" * (MAX_ANSWER + 1)), "/schemas/ids/2": schema()})
    script.headers = {} if coding == "identity" else {"Content-Encoding": coding}
    with served(script), closing(RegistrySchemas(script.registry())) as schemas:
        decoded_schema = schemas.schema(1)
        assert decoded_schema is not None
        assert "bytes" in decoded_schema.refusal
        script.headers.clear()
        assert schemas.schema(2) == WriterSchema("AVRO", '"int"')


def test_a_chain_of_references_has_an_end() -> None:
    """A thousand schemas that refer to each other are a thousand requests, and then as many again."""
    chain = {
        f"/subjects/s{number}/versions/1": schema("x", (f"n{number + 1}", f"s{number + 1}", 1))
        for number in range(1_000)
    }
    with (
        served(Scripted({"/schemas/ids/1": schema("x", ("n0", "s0", 1)), **chain})) as script,
        closing(RegistrySchemas(script.registry(), lambda: 0.0)) as schemas,
    ):
        decoded_schema = schemas.schema(1)

    assert decoded_schema is not None
    assert decoded_schema.refusal == f"it refers to more than {MAX_REFERENCES} schemas"
    assert len(script.asked) == 1 + MAX_REFERENCES


def test_schemas_that_refer_to_each_other_are_asked_for_once() -> None:
    """A circle of references ends where it began."""
    circle = {
        "/schemas/ids/1": schema("x", ("a", "a", 1)),
        "/subjects/a/versions/1": schema("a", ("b", "b", 1)),
        "/subjects/b/versions/1": schema("b", ("a", "a", 1)),
    }
    with served(Scripted(circle)) as script, closing(RegistrySchemas(script.registry())) as schemas:
        decoded_schema = schemas.schema(1)

    assert decoded_schema is not None
    assert sorted(reference.name for reference in decoded_schema.references) == ["a", "b"]
    assert len(script.asked) == len(circle)


def test_credentials_follow_no_redirect() -> None:
    """Where an answer points to is not where the settings point to."""
    with served(Scripted()) as elsewhere:
        script = Scripted(otherwise=(302, ""), headers={"Location": f"http://127.0.0.1:{elsewhere.port}/schemas/ids/1"})
        user = {"basic.auth.user.info": "me:hunter2"}
        with (
            served(script),
            closing(RegistrySchemas(script.registry(**user))) as schemas,
            pytest.raises(Terminal),
        ):
            schemas.schema(1)

    assert script.credentials[0] is not None
    assert not elsewhere.asked
