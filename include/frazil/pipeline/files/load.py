"""Reads pipeline, capture and settings files: YAML, references, models. Every error names the file and the key path, and has a hint at
the nearest valid name.
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

_LITERAL, _VALIDATED, _MAPPING = "literal[", "function-after[", "dict["
"""Prefixes of pydantic's names for branches of a union: certain words, a model with a validator, a mapping."""

_MAX_QUOTED = 200
"""Most characters that an error quotes of a value."""


def problems(
    model: type[BaseModel], error: ValidationError, raw: Mapping[Any, Any], values: Mapping[str, str]
) -> list[str]:
    """One line per error of pydantic, without follow-up errors and without values of references.

    Follow-up errors are: a tuple is too short because its broken items are missing, and the unused branch of a union.
    """
    errors = error.errors()
    outer = {details["loc"][:depth] for details in errors for depth in range(len(details["loc"]))}
    return [
        _problem(model, details, raw, values) + _comma_hint(details)
        for details in errors
        if not (details["type"] == "too_short" and details["loc"] in outer) and not _is_other_branch(details)
    ]


def _is_other_branch(details: Any) -> bool:
    """Whether an error is from the branch of a union that the author did not use: text or mapping."""
    if details["type"] == "model_type":
        return isinstance(details["input"], str)
    is_branch = any(str(part).startswith(_LITERAL) for part in details["loc"][-1:])
    return details["type"] == "literal_error" and is_branch and not isinstance(details["input"], str)


def _comma_hint(details: Any) -> str:
    """A hint for the second part of a text that YAML split at a comma, as in `{price: decimal(12,2)}`."""
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
        # Even pydantic's message may quote a part of the value.
        expected = f"; expected: {place.description}" if place.description else ""
        return f"{where}: what {text!r} stands for does not fit{expected}"
    message = hide(details["msg"].removeprefix("Value error, "), values)
    hidden = place.secret or details["type"] == "value_error" or isinstance(details["input"], dict | list)
    return f"{where}: {message}" + ("" if hidden else f", found {_quoted(details['input'])}")


def _written(raw: object, path: Sequence[str]) -> object:
    """The value of a file at a key path; if the model parses a text into parts, this text."""
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
    return text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a file: key path, valid keys, whether it may contain secrets, and its description in the model."""

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
            # A part may be the branch of a union, which is no key of the file.
            if branch := [model_type for model_type in types if _is_model(model_type) and model_type.__name__ == part]:
                types = branch
                continue
            if str(part).startswith((_LITERAL, _VALIDATED, _MAPPING)):
                continue
            path.append(str(part))
            fields = [field for model in types if _is_model(model) and (field := _field(model, part))]
            secret |= any(not field.repr for field in fields)
            description = next((field.description for field in fields), description)
            types = [inner for outer in types for inner in _inside(outer, part)]
        fields_by_name = (model.model_fields for model in types if _is_model(model))
        keys = tuple(field.alias or name for fields in fields_by_name for name, field in fields.items())
        return cls(tuple(path), keys, secret, description)


def _field(model: type[BaseModel], key: str | int) -> FieldInfo | None:
    """The field of a key, by the key's name in files or by the attribute's name."""
    return next((field for name, field in model.model_fields.items() if key in (field.alias, name)), None)


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _inside(annotation: Any, part: str | int) -> Iterator[Any]:
    """The possible types of a key, or of an item, within a type."""
    if _is_model(annotation):
        field = _field(annotation, part)
        yield from _branches(field.annotation) if field else ()
    elif get_origin(annotation) in (dict, tuple):
        yield from _branches(get_args(annotation)[get_origin(annotation) is dict])


def _branches(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, nested ones included; the type itself if it is none."""
    if get_origin(annotation) is Annotated:
        return _branches(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(inner for branch in get_args(annotation) for inner in _branches(branch))
    return (annotation,)


M = TypeVar("M", bound=BaseModel)

SCHEMAS = "schemas"
"""Name of the folder of schema files, beside the folder of pipeline files."""

MAX_IMPORTS: Final = 1_000
"""Most files that a .proto file imports, directly or indirectly: each one is read whenever Airflow parses the DAG."""

_IMPORT: Final = re.compile(
    r"""^[ \t]*import[ \t]+(?:public[ \t]+|weak[ \t]+)?(?:"([^"\n]+)"|'([^'\n]+)')""", re.MULTILINE
)
"""An import in a .proto file. An import in a comment matches, too, and does no harm: its file is read, if it exists."""


class ConfigError(Terminal):
    """A pipeline, capture or settings file is invalid.

    Attributes:
        file: The file.
        problems: One line per problem, each beginning with its key path.
    """

    def __init__(self, file: Path, problems: list[str], code: ErrorCode = SETTINGS_FILE_INVALID) -> None:
        self.file = file
        self.problems = problems
        super().__init__(
            "\n  ".join([f"{storable_name(str(file))}:", *problems]),
            code=code,
            next_step=f"mend the file, then check it: frazil validate {storable_name(str(file))}",
        )


def storable_name(name: str) -> str:
    """The name of a file as text that can be stored, even if its bytes are not UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def as_config_error(
    load: Callable[[Path, References], M], code: ErrorCode = PIPELINE_FILE_INVALID
) -> Callable[[Path, References], M]:
    """Decorate a function that loads a file: other errors become a ConfigError of the file, so that other files are still read."""

    @wraps(load)
    def load_or_refuse(path: Path, references: References) -> M:
        try:
            return load(path, references)
        except ConfigError as error:
            error.code = code
            raise
        except (ArithmeticError, ValueError, RecursionError) as error:
            # Not the error's own text, which may quote the value of a reference.
            *_, place = traceback.extract_tb(error.__traceback__)
            problem = f"file: can't be read: {type(error).__name__} in {Path(place.filename).name}, line {place.lineno}"
        raise ConfigError(path, [problem], code)

    return load_or_refuse


@as_config_error
def load_pipeline(path: Path, references: References) -> Pipeline:
    """Read one pipeline file.

    Raises:
        ConfigError: The file can't be read, isn't YAML, or does not fit the model.
    """
    raw = read_yaml(path, path.parent)
    pipeline = _model(path, raw, Pipeline, references.resolve_allowed).with_parts(raw)
    if problems := list(_unfillable_columns(pipeline)):
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


def _unfillable_columns(pipeline: Pipeline) -> Iterator[str]:
    """Problems of columns: columns of the key in a pipeline that decodes no keys, and tables without a column of the value."""
    has_keys = pipeline.key is not None or any(step.name == "ValueToKey" for step in pipeline.transforms)
    for key, destination in pipeline.declared.items():
        key_columns = [name for name, column in destination.columns.items() if column.part == "key"]
        for name in () if has_keys else key_columns:
            yield (
                f"{key}.columns.{name}.part: keys are not decoded: declare how under key, or let the transform"
                " ValueToKey make them"
            )
        parts = {column.part for column in destination.columns.values()}
        if parts and "value" not in parts and destination.evolves == "none":
            yield f"{key}.columns: all are of the {' or a '.join(sorted(parts))}: at least one must be of the value"


def _with_schema(path: Path, half: str, decoding: Decoding) -> Decoding:
    """`value` or `key` with the text of its schema file, which decides outcomes like the pipeline file."""
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
    """Add the files that a .proto file imports, directly or indirectly, to the texts by path.

    A path is relative to the folder of schemas, or to the folder of the file that the pipeline names. Files in neither place are
    skipped: the compiler may have them, and reports them otherwise.
    """
    size = len(texts[""])
    unread = [_IMPORT.finditer(texts[""])]  # a stack, since imports may be nested more deeply than Python recurses
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
        ConfigError: The file can't be read, isn't YAML, or does not fit the model.
    """
    raw = read_yaml(path)
    if ambiguous := list(ambiguous_connections(raw)):
        raise ConfigError(path, ambiguous)
    return _model(path, raw, Settings, references.resolve)


def load_model(path: Path, model: type[M], references: References) -> M:
    """Read a pipeline or capture file as a model. Only references that the settings allow are resolved.

    Raises:
        ConfigError: The file can't be read, isn't YAML, or does not fit the model.
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
    # Raised outside of the handler, because Python would print the handled error, which quotes values, as well.
    raise ConfigError(path, unresolved)


def read_yaml(path: Path, folder: Path | None = None) -> dict[Any, Any]:
    """Read a YAML file with keys and values, without resolving references.

    Args:
        path: The file.
        folder: The folder that the file must be in, after all links are followed; None: any.

    Raises:
        ConfigError: The file can't be read, or is no such file.
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
    """The values of a pipeline file with its references resolved.

    Raises:
        ValueError: A reference has no value now, or is no longer allowed.
    """
    problems: list[str] = []
    resolved = _substitute(node, references.resolve_allowed, (), {}, problems)
    if problems:
        raise ValueError("references that can't be resolved")
    return resolved


def _substitute(
    node: object,
    resolve: Callable[[re.Match[str]], str],
    key_path: tuple[str, ...],
    values: dict[str, str],
    problems: list[str],
) -> object:
    """The value `node` with every reference resolved. Problems are collected, not raised, so that all are reported at once.

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
