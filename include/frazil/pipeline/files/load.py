"""Reads pipeline and settings files: YAML, references, models. Every complaint is a sentence that names the file, the
key path and the nearest valid name.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from frazil.error_codes import PIPELINE_FILE_INVALID, SETTINGS_FILE_INVALID
from frazil.errors import ErrorCode, Terminal
from frazil.pipeline.files.files import (
    MAX_BYTES,
    REFERENCE,
    References,
    UnfitYamlError,
    UnreadableFileError,
    ambiguous_connections,
    hide,
    parse_yaml,
    read_text,
)
from frazil.pipeline.models.pipeline_file import Pipeline
from frazil.pipeline.models.value import Decoding
from frazil.pipeline.settings.settings import Settings

_LITERAL = "literal["
"""How pydantic names the branch of a union that takes certain words."""

_CHECKED = "function-after["
"""How pydantic names the branch of a union whose model is checked as a whole."""

_MAPPING = "dict["
"""How pydantic names the branch of a union that takes a mapping."""


_LONGEST = 200
"""Characters that are quoted of what a file has."""


def problems(
    model: type[BaseModel], error: ValidationError, raw: Mapping[Any, Any], values: Mapping[str, str]
) -> list[str]:
    """One line per error of pydantic, without consequential errors and without resolved references.

    A tuple that lost its broken items is also called too short, and the other branch of a union complains as well.
    """
    complaints = error.errors()
    outer = {details["loc"][:depth] for details in complaints for depth in range(len(details["loc"]))}
    return [
        _problem(model, details, raw, values) + _quoting(details)
        for details in complaints
        if not (details["type"] == "too_short" and details["loc"] in outer) and not _is_other_branch(details)
    ]


def _is_other_branch(details: Any) -> bool:
    """Whether an error belongs to the branch of a union that the author did not use: text or mapping."""
    if details["type"] == "model_type":
        return isinstance(details["input"], str)
    is_branch = any(str(part).startswith(_LITERAL) for part in details["loc"][-1:])
    return details["type"] == "literal_error" and is_branch and not isinstance(details["input"], str)


def _quoting(details: Any) -> str:
    """Advice at the rest of a text that YAML split at its comma, as in `{price: decimal(12,2)}`."""
    rest = str(details["loc"][-1]) if details["loc"] else ""
    is_rest = details["input"] is None and any(rest.count(end) > rest.count(start) for start, end in ("()", "<>"))
    return "; between braces YAML splits a text at its comma: quote it, as in 'decimal(12,2)'" if is_rest else ""


def _problem(model: type[BaseModel], details: Any, raw: Mapping[Any, Any], values: Mapping[str, str]) -> str:
    if details["type"] == "extra_forbidden":
        *above, key = details["loc"]
        place = _Place.locate(model, above)
        similar = get_close_matches(str(key), place.keys, 1)
        hint = f", did you mean {similar[0]!r}?" if similar else f"; known keys: {', '.join(place.keys)}"
        return f"{'.'.join((*place.path, str(key)))}: unknown key{hint}"
    place = _Place.locate(model, details["loc"])
    below = getattr(details.get("ctx", {}).get("error"), "key", None)
    where = ".".join([*place.path, *([below] if isinstance(below, str) else [])]) or "file"
    if details["type"] == "missing":
        return f"{where}: is required and missing"
    if isinstance(text := _written(raw, place.path), str) and REFERENCE.search(text):
        # Even the complaint may quote a part of the value.
        expected = f"; expected: {place.description}" if place.description else ""
        return f"{where}: what {text!r} stands for does not fit{expected}"
    message = hide(details["msg"].removeprefix("Value error, "), values)
    hidden = place.secret or details["type"] == "value_error" or isinstance(details["input"], dict | list)
    return f"{where}: {message}" + ("" if hidden else f", found {_quoted(details['input'])}")


def _written(raw: object, path: Sequence[str]) -> object:
    """The value of a file at a key path, or above it where the model parses a text into parts."""
    node = raw
    for part in path:
        if isinstance(node, dict):
            node = next((value for key, value in node.items() if str(key) == part), None)
        elif isinstance(node, list):
            node = node[int(part)] if part.isdecimal() and int(part) < len(node) else None
        else:
            break
    return node


def _quoted(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number of thousands of digits
        return "a number that is too long to be shown"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a file by its model: key path, valid keys, whether it may contain secrets, and its description."""

    path: tuple[str, ...]
    keys: tuple[str, ...]
    secret: bool
    description: str | None

    @classmethod
    def locate(cls, model: type[BaseModel], loc: Sequence[str | int]) -> _Place:
        types: list[Any] = [model]
        path: list[str] = []
        secret, description = False, None
        for part in loc:
            # pydantic names the branch of a union, which is no key of the file
            if branch := [one for one in types if _is_model(one) and one.__name__ == part]:
                types = branch
                continue
            if str(part).startswith((_LITERAL, _CHECKED, _MAPPING)):
                continue
            path.append(str(part))
            fields = [field for model in types if _is_model(model) and (field := _field(model, part))]
            secret |= any(not field.repr for field in fields)
            description = next((field.description for field in fields), description)
            types = [inner for outer in types for inner in _inside(outer, part)]
        keys = tuple(key for model_type in types if _is_model(model_type) for key in _keys(model_type))
        return cls(tuple(path), keys, secret, description)


def _keys(model: type[BaseModel]) -> Iterator[str]:
    """The keys of a model as they are written in the file."""
    yield from (field.alias or name for name, field in model.model_fields.items())


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    """The field that a file's key fills, also where the attribute has another name."""
    return next((field for name, field in model.model_fields.items() if key in (field.alias, name)), None)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """The annotations that hold for one key, or one item, of an annotation."""
    if _is_model(annotation):
        field = _field(annotation, part)
        yield from _branches(field.annotation) if field else ()
    elif get_origin(annotation) in (dict, tuple):
        yield from _branches(get_args(annotation)[get_origin(annotation) is dict])


def _branches(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Annotated:
        return _branches(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(inner for branch in get_args(annotation) for inner in _branches(branch))
    return (annotation,)


M = TypeVar("M", bound=BaseModel)

SCHEMAS = "schemas"
"""Folder of schema files, beside the folder of pipeline files."""

MAX_IMPORTS: Final = 1_000
"""Bounds the files that a .proto file imports, and those they import: each costs a look into the folder at every parse of Airflow."""

_IMPORT: Final = re.compile(
    r"""^[ \t]*import[ \t]+(?:public[ \t]+|weak[ \t]+)?(?:"([^"\n]+)"|'([^'\n]+)')""", re.MULTILINE
)
"""An import of a .proto file. One in a comment is read too, if its file is there, and changes nothing."""


class ConfigError(Terminal):
    """A pipeline or settings file that can't be used.

    Attributes:
        file: The file.
        problems: One line per problem, each beginning with its key path.
    """

    def __init__(self, file: Path, problems: list[str], code: ErrorCode = SETTINGS_FILE_INVALID) -> None:
        self.file = file
        self.problems = problems
        super().__init__(
            "\n  ".join([f"{writable(str(file))}:", *problems]),
            code=code,
            next_step=f"mend the file, then check it: frazil validate {writable(str(file))}",
        )


def writable(name: str) -> str:
    """Name of a file as a text that can be stored, also if its bytes are no UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def refuses_by_name(
    load: Callable[[Path, References], M], code: ErrorCode = PIPELINE_FILE_INVALID
) -> Callable[[Path, References], M]:
    """Turn any other error while reading a file into a problem of that file, so that other files are still read."""

    @wraps(load)
    def loaded(path: Path, references: References) -> M:
        try:
            return load(path, references)
        except ConfigError as error:
            error.code = code
            raise
        except (ArithmeticError, ValueError, RecursionError) as error:
            # Not the error's own text: it may quote what a reference stands for.
            *_, place = traceback.extract_tb(error.__traceback__)
            problem = f"file: can't be read: {type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        raise ConfigError(path, [problem], code)

    return loaded


@refuses_by_name
def load_pipeline(path: Path, references: References) -> Pipeline:
    """Read one pipeline file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    raw = read_yaml(path, path.parent)
    pipeline = _model(path, raw, Pipeline, references.resolve_allowed).with_parts(raw)
    if problems := list(_without_source(pipeline)):
        raise ConfigError(path, problems)
    halves = {"value": pipeline.value, "key": pipeline.key}
    try:
        schemas = {
            half: _with_schema(path, half, decoding)
            for half, decoding in halves.items()
            if decoding is not None and decoding.schema_file
        }
    except ConfigError as error:
        raise ConfigError(path, [*map(references.hidden, error.problems)]) from None
    return pipeline.model_copy(update=schemas) if schemas else pipeline


def _without_source(pipeline: Pipeline) -> Iterator[str]:
    """Problems: columns from keys without a key format, and a value format that no column uses."""
    has_keys = pipeline.key is not None or any(step.name == "ValueToKey" for step in pipeline.transforms)
    for key, destination in pipeline.declared.items():
        of_key = [name for name, column in destination.columns.items() if column.part == "key"]
        for name in () if has_keys else of_key:
            yield (
                f"{key}.columns.{name}.part: keys are not decoded: declare how under key, or let the transform"
                " ValueToKey make them"
            )
        parts = {column.part for column in destination.columns.values()}
        if parts and "value" not in parts and destination.evolves == "none":
            yield f"{key}.columns: all are of the {' or a '.join(sorted(parts))}: at least one must be of the value"


def _with_schema(path: Path, half: str, decoding: Decoding) -> Decoding:
    """`value` or `key` with the text of its schema file, which decides outcomes as the pipeline file does."""
    folder = path.parent.parent / SCHEMAS
    main = folder / str(decoding.schema_file)
    try:
        texts = {"": read_text(main, folder)}
        if decoding.format == "protobuf":
            _add_imports(texts, folder, main.parent)
    except UnreadableFileError as error:
        raise ConfigError(path, [f"{half}.schema_file: {error}"]) from error
    texts_of_schema: dict[str, Any] = {"schema_": texts.pop("")}
    return decoding.model_copy(update=texts_of_schema | ({"schema_imports": texts} if texts else {}))


def _add_imports(texts: dict[str, str], folder: Path, importing_folder: Path) -> None:
    """Add the files that a .proto file imports, and after each of them those that it imports itself.

    They are looked for from the folder of schemas on, then beside the file that the pipeline names. What is in neither place may
    come with the compiler, which says so otherwise.
    """
    size = len(texts[""])
    unread = [_IMPORT.finditer(texts[""])]  # innermost file last: files may import each other in any depth
    while unread:
        if (statement := next(unread[-1], None)) is None:
            unread.pop()
            continue
        import_path = statement[1] or statement[2]
        if import_path in texts:
            continue
        places = (root / import_path for root in (folder, importing_folder))
        if (file := next(filter(_exists, places), None)) is None:
            continue
        texts[import_path] = read_text(file, folder)
        if len(texts) > MAX_IMPORTS + 1:
            raise UnreadableFileError(f"expected at most {MAX_IMPORTS:,} imported files, found more")
        size += len(texts[import_path])
        if size > MAX_BYTES:
            raise UnreadableFileError(f"expected at most {MAX_BYTES:,} bytes with all imports, found more")
        unread.append(_IMPORT.finditer(texts[import_path]))


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def load_settings(path: Path, references: References) -> Settings:
    """Read the settings file.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    raw = read_yaml(path)
    if ambiguous := list(ambiguous_connections(raw)):
        raise ConfigError(path, ambiguous)
    return _model(path, raw, Settings, references.resolve)


def load_model(path: Path, model: type[M], references: References) -> M:
    """Read a pipeline or capture file as a model. It may refer to what the settings allow, and to nothing else.

    Raises:
        ConfigError: It can't be read, isn't YAML, or does not fit the model.
    """
    return _model(path, read_yaml(path, path.parent), model, references.resolve_allowed)


def _model(path: Path, raw: Mapping[Any, Any], model: type[M], resolve: Callable[[re.Match[str]], str]) -> M:
    values: dict[str, str] = {}
    unresolved: list[str] = []
    content = _substitute(raw, resolve, (), values, unresolved)
    if not unresolved:
        try:
            return model.model_validate(content)
        except ValidationError as error:
            unresolved = problems(model, error, raw, values)
    # Raised out here: an error that was being handled would be printed with it, and quote values.
    raise ConfigError(path, unresolved)


def read_yaml(path: Path, folder: Path | None = None) -> dict[Any, Any]:
    """Read a YAML file that has keys and values, without resolving references.

    Args:
        path: The file.
        folder: Where it must lie, whatever links lead to it; None: anywhere.

    Raises:
        ConfigError: It is none.
    """
    try:
        raw = parse_yaml(read_text(path, folder))
    except UnreadableFileError as error:
        raise ConfigError(path, [str(error).removeprefix(f"{path} ").removeprefix(f"{path}: ")]) from error
    except yaml.MarkedYAMLError as error:
        where = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        problem = error.problem if isinstance(error, UnfitYamlError) else f"not YAML: {error.problem}"
        raise ConfigError(path, [f"{where}{problem}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError(path, [f"not YAML: {error}"]) from error
    if not isinstance(raw, dict):
        raise ConfigError(
            path, ["expected keys and values, found " + ("an empty file" if raw is None else type(raw).__name__)]
        )
    return raw


def resolve_references(node: object, references: References) -> Any:
    """Values of a pipeline file with its references resolved.

    Raises:
        ValueError: A reference has no value now, or is no longer allowed.
    """
    problems: list[str] = []
    values = _substitute(node, references.resolve_allowed, (), {}, problems)
    if problems:
        raise ValueError("references that can't be resolved")
    return values


def _substitute(
    node: object,
    resolve: Callable[[re.Match[str]], str],
    key_path: tuple[str, ...],
    values: dict[str, str],
    problems: list[str],
) -> object:
    """`node` with every reference replaced; complaints are collected, not raised, so that all show at once.

    Args:
        node: A value of a file.
        resolve: Returns the value of a reference, or raises a KeyError with the reason.
        key_path: Key path of the value.
        values: Collects the value of each reference.
        problems: Collects the problems.
    """
    if isinstance(node, dict):
        return {
            key: _substitute(below, resolve, (*key_path, str(key)), values, problems) for key, below in node.items()
        }
    if isinstance(node, list):
        return [
            _substitute(below, resolve, (*key_path, str(index)), values, problems) for index, below in enumerate(node)
        ]
    if not isinstance(node, str):
        return node

    def replace(match: re.Match[str]) -> str:
        if match["escape"]:
            return match[0].removeprefix("$")
        try:
            value = values[match[0]] = resolve(match)
        except KeyError as error:
            problems.append(f"{'.'.join(key_path)}: {error.args[0]}")
            return ""
        return value

    return REFERENCE.sub(replace, node)
