"""Differences between two versions of the pipeline and capture files: new, removed, renamed and changed ones, and the changed keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pydantic import BaseModel

from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.settings.capture import Capture, FileCapture, Flow

F = TypeVar("F", bound=Flow)

Weight = Literal["info", "warning", "refused"]


@dataclass(frozen=True, slots=True)
class Impact:
    """One thing that a change does.

    Attributes:
        weight: `info`; `warning`: a person may not have meant it; `refused`: the next run would refuse it.
        text: What happens, in words.
    """

    weight: Weight
    text: str


Kind = Literal["new", "removed", "renamed", "changed"]

_HIDDEN = ("properties", "conf")
"""Keys below which passwords may stand: that something changed is told, not what."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key that differs.

    Attributes:
        path: Its path in the file, such as `limits.max_records`; entries of `destinations` by the name of their table.
        before: Its value, None if it was not there.
        after: The same, of the new version.
    """

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if any(part in _HIDDEN for part in self.path.split(".")):
            return self.path
        return f"{self.path}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True, slots=True)
class Change(Generic[F]):
    """One pipeline or capture that differs.

    `before` is None for a new one, `after` for a removed one; `keys` lists the changed keys of one that both versions have.
    """

    kind: Kind
    name: str
    before: F | None
    after: F | None
    keys: tuple[KeyChange, ...] = ()

    def touches(self, *paths: str) -> bool:
        """Whether one of these keys, or a key below them, differs."""
        return any(key.path == path or key.path.startswith(f"{path}.") for key in self.keys for path in paths)


PipelineChange = Change[Pipeline]

CaptureChange = Change[Capture]


def difference(before: Mapping[str, Pipeline], after: Mapping[str, Pipeline]) -> tuple[PipelineChange, ...]:
    """Compare the pipelines of two versions by name. A removed and a new one with the same topics and tables count as renamed."""
    return _difference(before, after, _is_same)


def capture_difference(before: Mapping[str, Capture], after: Mapping[str, Capture]) -> tuple[CaptureChange, ...]:
    """Compare the captures of two versions by name. A removed and a new one with the same source and topic count as renamed."""
    return _difference(before, after, lambda old, new: source_of(old) == source_of(new) and old.topic == new.topic)


def source_of(capture: Capture) -> tuple[object, ...]:
    """What a capture reads."""
    if isinstance(capture, FileCapture):
        return (capture.paths,)
    return (capture.database, capture.table, capture.query)


def _difference(
    before: Mapping[str, F], after: Mapping[str, F], is_same: Callable[[F, F], bool]
) -> tuple[Change[F], ...]:
    changes = [
        Change("changed", name, before[name], after[name], keys)
        for name in sorted(before.keys() & after.keys())
        if (keys := key_changes(before[name], after[name]))
    ]
    removed = {name: before[name] for name in sorted(before.keys() - after.keys())}
    for name in sorted(after.keys() - before.keys()):
        former = next((candidate for candidate in removed.values() if is_same(candidate, after[name])), None)
        if former is None:
            changes.append(Change("new", name, None, after[name]))
        else:
            changes.append(Change("renamed", name, removed.pop(former.name), after[name]))
    return (*changes, *(Change("removed", name, last, None) for name, last in removed.items()))


def key_changes(before: BaseModel, after: BaseModel) -> tuple[KeyChange, ...]:
    """The keys in which two models of one kind differ, by path."""
    old, new = (dict(_leaves("", model.model_dump(mode="json", by_alias=True))) for model in (before, after))
    return tuple(
        KeyChange(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    )


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(f"{path}.{key}" if path else str(key), below)
    elif isinstance(value, list) and value and all(isinstance(member, Mapping) for member in value):
        for number, below in enumerate(value):
            yield from _leaves(f"{path}.{below.get('table', number)}", below)
    elif value is not None and value not in ({}, []):
        yield path, str(value)


def _is_same(before: Pipeline, after: Pipeline) -> bool:
    shared = set(before.tables) & set(after.tables)
    return bool(shared or before.create is not None) and before.source == after.source


def _shown(value: str | None) -> str:
    return "(none)" if value is None else value
