"""What it takes to learn the former names of a message's fields, and what a registry that has other work makes of it."""

from __future__ import annotations

import json
import pickle
from contextlib import closing

import pytest

from frazil.errors import Retryable
from frazil.registry.client import EARLIER_SUBJECTS, RegistrySchemas
from tests.integration.registry.test_failures import Scripted, served


def message(number: int) -> tuple[int, str]:
    """The answer that holds a version, which imports another file."""
    text = f'syntax = "proto3"; import "b.proto"; message M {{ int32 f{number} = 1; }}'
    listed = [{"name": "b.proto", "subject": "b", "version": 1}]
    return 200, json.dumps({"schema": text, "schemaType": "PROTOBUF", "references": listed})


def places(**versions: int) -> tuple[int, str]:
    """The answer that says which subjects have the schema."""
    return 200, json.dumps([{"subject": subject, "version": version} for subject, version in versions.items()])


THIRD = {
    "/schemas/ids/7": message(3),
    "/schemas/ids/7/versions": places(t=3),
    "/subjects/t/versions": (200, "[1, 2, 3]"),
    "/subjects/t/versions/1": message(1),
    "/subjects/t/versions/2": message(2),
    "/subjects/b/versions/1": (200, json.dumps({"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"})),
}


def test_shared_imports_of_versions_are_fetched_once() -> None:
    """Twenty versions with five imports would be more than a hundred requests."""
    with served(Scripted(dict(THIRD))) as script, closing(RegistrySchemas(script.registry())) as schemas:
        decoded_schema = schemas.schema(7)

    assert decoded_schema is not None
    assert [schema.text.partition(" = 1")[0][-2:] for schema in decoded_schema.earlier] == ["f2", "f1"]
    assert sorted(script.asked) == sorted(THIRD)


def test_tasks_share_earlier_versions() -> None:
    """A batch has hundreds of tasks, which the registry would see at once."""
    with served(Scripted(dict(THIRD))) as script:
        pickled = pickle.dumps(RegistrySchemas(script.registry()))
        one, two = (pickle.loads(pickled) for _ in range(2))  # noqa: S301, our own bytes
        with closing(one):
            assert one.schema(7) == two.schema(7)

    assert len(script.asked) == len(THIRD)


@pytest.mark.parametrize("path", ["/schemas/ids/7/versions", "/subjects/t/versions", "/subjects/t/versions/1"])
def test_busy_registry_does_not_stop_batch_with_known_schemas(path: str) -> None:
    """A moment without answer is no reason to fail, and none to land a renamed field elsewhere either."""
    script = Scripted(dict(THIRD), busy={path: 3})
    with served(script), closing(RegistrySchemas(script.registry())) as schemas:
        decoded_schema = schemas.schema(7)

    assert decoded_schema is not None
    assert len(decoded_schema.earlier) == 2


def test_earlier_versions_have_their_own_time_limit() -> None:
    """They have their own, and what was found is not asked for again: a slow registry gets to the end in several tries."""
    hurried = iter([0.0, 1.0, 11.0, 11.5, 20.0, 40.0, 70.0, 80.0])  # the last question is too late
    with (
        served(Scripted(dict(THIRD))) as script,
        closing(RegistrySchemas(script.registry(), lambda: next(hurried, 0.0))) as schemas,
    ):
        with pytest.raises(Retryable, match="took over 60 s"):
            schemas.schema(7)
        assert "/subjects/t/versions/1" not in script.asked
        decoded_schema = schemas.schema(7)

    assert decoded_schema is not None
    assert len(decoded_schema.earlier) == 2
    assert script.asked.count("/subjects/t/versions/2") == 1


def test_schema_of_many_subjects_is_resolved_in_bounded_requests() -> None:
    """Those with the most versions tell the most; a first version has none before it."""
    many = {f"s{number}": number for number in range(1, EARLIER_SUBJECTS + 3)}
    answers = {
        **THIRD,
        "/schemas/ids/7/versions": places(**many),
        **{f"/subjects/{subject}/versions": (200, "[]") for subject in many},
    }
    with served(Scripted(answers)) as script, closing(RegistrySchemas(script.registry())) as schemas:
        schemas.schema(7)

    listed = [path for path in script.asked if path.startswith("/subjects/s")]
    assert listed == [f"/subjects/s{number}/versions" for number in range(EARLIER_SUBJECTS + 2, 2, -1)]
