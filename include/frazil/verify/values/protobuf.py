"""Decodes values of Protocol Buffers into fields with `protoc` and Google's library. The writer schema is untrusted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from frazil.verify.values.json_document import EPOCH, Unfit
from frazil.verify.values.native import UNKNOWN, Fields, Schema, UnjudgedError, zigzag


def protobuf_reader(schema: Schema, message: str | None, *, truncates: bool = False) -> Callable[[bytes], Fields]:
    """Make the reader of values of a schema. Without `message`, an index path before each value selects its message type.

    Raises:
        UnjudgedError: The schema does not compile here, or has no such message.
    """
    pool, main = _compiled(schema[0], tuple(schema[1].items()))
    try:
        by_name = None if message is None else pool.FindMessageTypeByName(message)
    except KeyError as error:
        raise UnjudgedError("no such message in its schema") from error
    single_values = {**_KNOWN_MESSAGES, "google.protobuf.Timestamp": _cut_timestamp} if truncates else _KNOWN_MESSAGES

    def read(raw: bytes) -> Fields:
        descriptor, rest = (by_name, raw) if by_name is not None else _indexed_message(pool, main, raw)
        try:
            parsed = GetMessageClass(descriptor)()
            parsed.ParseFromString(rest)
            return _fields_of(parsed, (), single_values)
        except DecodeError as error:
            raise Unfit("not of its schema") from error
        except Unfit:
            raise
        except (TypeError, AttributeError, ValueError, ArithmeticError) as error:
            # A schema may define Google's messages differently, or have fields that hide methods of Python's messages.
            raise UnjudgedError("its schema has messages or fields that can't be read here") from error

    return read


@lru_cache(256)
def _compiled(text: str, imports: Sequence[tuple[str, str]]) -> tuple[DescriptorPool, str]:
    with TemporaryDirectory() as folder:
        sources, built = Path(folder, "sources"), Path(folder, "descriptors")
        try:
            for name, source in (*_IMPORTS.items(), *imports, (_MAIN, text)):
                _write(sources, name, source)
            # Not started in that folder, because Python would import modules from there, whose names the schema chooses.
            command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{sources}", f"--descriptor_set_out={built}"]
            done = subprocess.run(
                [*command, "--include_imports", _MAIN], capture_output=True, timeout=_SECONDS, check=False
            )
            if done.returncode:
                raise UnjudgedError("its schema does not compile here")
            files = FileDescriptorSet.FromString(built.read_bytes()).file
            pool = DescriptorPool()
            for file in files:
                pool.Add(file)
        except subprocess.TimeoutExpired as error:
            raise UnjudgedError(f"its schema does not compile here within {_SECONDS} s") from error
        except (OSError, ValueError, TypeError, DecodeError) as error:
            raise UnjudgedError("its schema can't be compiled here") from error
    return pool, _MAIN


def _write(folder: Path, name: str, source: str) -> None:
    """Write a file for protoc. The schema chooses its name, so it must not leave the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or not name.isprintable():
        raise UnjudgedError(f"its schema refers to a file named {name[:_SHOWN]!r}")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")


_SHOWN: Final = 200
"""Most characters of a file's name in a reason."""

_SECONDS: Final = 60
"""Timeout of compiling one schema, which takes a tenth of a second."""

_MAIN: Final = "verified.proto"

_SYNTAX: Final = 'syntax = "proto3"; package google.type;'
_IMPORTS: Final[Mapping[str, str]] = {
    "confluent/meta.proto": 'syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";'
    " message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }"
    " extend google.protobuf.FileOptions { Meta file_meta = 1088; }"
    " extend google.protobuf.MessageOptions { Meta message_meta = 1088; }"
    " extend google.protobuf.FieldOptions { Meta field_meta = 1088; }"
    " extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }"
    " extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }",
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type;'
    " message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "google/type/decimal.proto": f"{_SYNTAX} message Decimal {{ string value = 1; }}",
    "google/type/date.proto": f"{_SYNTAX} message Date {{ int32 year = 1; int32 month = 2; int32 day = 3; }}",
    "google/type/timeofday.proto": f"{_SYNTAX} message TimeOfDay"
    " { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }",
}
"""Files that schemas import without naming them as references, and that the compiler does not bring."""


def _indexed_message(pool: DescriptorPool, main: str, raw: bytes) -> tuple[Descriptor, bytes]:
    """The message type that the leading index path selects, and the bytes after it. The path is a count and as many indexes; a
    single 0 is the first message.
    """
    position, numbers = 0, []
    count, position = zigzag(raw, position)
    for _ in range(count):
        number, position = zigzag(raw, position)
        numbers.append(number)
    descriptor: Any = None
    for number in numbers or [0]:
        candidates = (
            list(pool.FindFileByName(main).message_types_by_name.values())
            if descriptor is None
            else list(descriptor.nested_types)
        )
        if not 0 <= number < len(candidates):
            raise Unfit("no such message in its schema")
        descriptor = candidates[number]
    return descriptor, raw[position:]


_SingleValues = Mapping[str, Callable[[Any], Any]]
"""Name of a message type that stands for one value -> conversion to that value."""


def _fields_of(message: Message, above: Sequence[str], single_values: _SingleValues) -> Fields:
    name = message.DESCRIPTOR.full_name
    return {field.name: _field(message, field, (*above, name), single_values) for field in message.DESCRIPTOR.fields}


def _field(message: Message, field: FieldDescriptor, above: Sequence[str], single_values: _SingleValues) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return {key: _value_of(value[key], inner, above, single_values) for key in value}
    if field.is_repeated:
        return [_value_of(part, field, above, single_values) for part in value]
    is_there = not field.has_presence or message.HasField(field.name)
    return _value_of(value, field, above, single_values) if is_there else None


def _value_of(value: Any, field: FieldDescriptor, above: Sequence[str], single_values: _SingleValues) -> Any:  # noqa: PLR0911 - a case for each kind
    if field.enum_type is not None:
        enum_value = field.enum_type.values_by_number.get(value)
        return UNKNOWN if enum_value is None else enum_value.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name in _WRAPPERS:
        return value.value
    if name in single_values:
        try:
            return single_values[name](value)
        except (ValueError, OverflowError):
            return UNKNOWN
    if name in above or name.startswith(("google.", "confluent.")):
        return UNKNOWN
    return _fields_of(value, above, single_values)


_WRAPPERS: Final = {
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
}


def _timestamp(value: Any) -> datetime:
    if value.nanos % 1_000:
        raise Unfit("parts of a microsecond")
    return _cut_timestamp(value)


def _cut_timestamp(value: Any) -> datetime:
    return EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1_000)


_KNOWN_MESSAGES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "google.protobuf.Timestamp": _timestamp,
    "google.type.Date": lambda value: date(value.year, value.month, value.day),
    "google.type.TimeOfDay": lambda clock: (
        UNKNOWN if clock.nanos % 1_000 else time(clock.hours, clock.minutes, clock.seconds, clock.nanos // 1_000)
    ),
}
