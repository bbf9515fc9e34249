"""Compiles sources of Protocol Buffers with `protoc` to descriptors, in a pool per writer schema."""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, EncodeError

from frazil.error_codes import BAD_SCHEMA
from frazil.records.formats.protobuf.columns import KNOWN_FIELDS
from frazil.records.formats.registered import reading_schema, unusable_schema
from frazil.records.model.dead_letter import DeadCode, Rejection
from frazil.records.model.format import WriterSchema

IMPORTS: Final[Mapping[str, str]] = {
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
""",
    "google/type/date.proto": """
syntax = "proto3";
package google.type;
message Date { int32 year = 1; int32 month = 2; int32 day = 3; }
""",
    "google/type/timeofday.proto": """
syntax = "proto3";
package google.type;
message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }
""",
    "google/type/decimal.proto": """
syntax = "proto3";
package google.type;
message Decimal { string value = 1; }
""",
}
"""File name -> source of a file that any schema may import."""


_MAIN: Final = "frazil_writer_schema.proto"
_LONGEST_NAME: Final = 200
"""Bytes of an imported file's name. File systems take 255."""

_SECONDS: Final = 60
"""Seconds that `protoc` may take for one schema. It takes a tenth of a second, unless the machine is overloaded."""

_CACHED_SCHEMAS: Final = 256
"""Schemas whose descriptors are cached for later tasks of this process: a schema never changes."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")


class Schema:
    """The messages of one source file and of all that it imports.

    Args:
        writer: The source, or the file's descriptor as base64: registries keep either.

    Raises:
        Rejection: UNUSABLE_SCHEMA, it is neither, or does not compile.
        Retryable: the compiler timed out.
    """

    def __init__(self, writer: WriterSchema) -> None:
        self.pool: Final = DescriptorPool()
        with reading_schema(EncodeError):
            files, self.comments = _files(replace(writer, earlier=()))
            for file in files:
                self.pool.AddSerializedFile(file.SerializeToString())
            self._check_known()
        self._main: Final = files[-1]

    def _check_known(self) -> None:
        """Refuse the schema's own versions of messages that mean one value, if they lack a field that is read."""
        for name, parts in sorted(KNOWN_FIELDS.items()):
            try:
                own = self.pool.FindMessageTypeByName(name).fields_by_name
            except KeyError:
                continue
            for part, kind in parts.items():
                if part not in own or (own[part].type, own[part].is_repeated) != kind:
                    raise unusable_schema(f"a message {name} with another field {part}, or none")

    def message_at(self, path: Sequence[int]) -> Descriptor:
        """Return the message type at a path: the indexes of the enclosing messages, the outermost first, then its own.

        Raises:
            Rejection: INVALID_WIRE, there is none.
        """
        siblings: Sequence[DescriptorProto] = self._main.message_type
        names = [self._main.package] if self._main.package else []
        for step in path:
            if not 0 <= step < len(siblings):
                expected = f"expected the path to one of {len(siblings)} messages"
                raise Rejection(DeadCode.INVALID_WIRE, f"{expected}, found {list(path)[:10]}")
            names.append(siblings[step].name)
            siblings = siblings[step].nested_type
        return self.pool.FindMessageTypeByName(".".join(names))

    def named(self, message: str) -> Descriptor:
        """Return a message type by its name, with or without the package of the file.

        Raises:
            Rejection: UNUSABLE_SCHEMA, there is none.
        """
        for name in (message, f"{self._main.package}.{message}"):
            try:
                return self.pool.FindMessageTypeByName(name)
            except KeyError:
                continue
        known_names = ", ".join(message_type.name for message_type in self._main.message_type)
        raise unusable_schema(f"no message {message}, but {known_names or 'none'}")


def _comments(file: FileDescriptorProto) -> Iterator[tuple[str, str]]:
    """Yield the full names of fields with the comment before the field, or else the one behind it."""
    # A location is a path of indexes and of the numbers that descriptor.proto gives these lists.
    messages, nested, fields = 4, 3, 2
    for location in file.source_code_info.location:
        text, path = location.leading_comments or location.trailing_comments, location.path
        is_field = len(path) >= 4 and len(path) % 2 == 0 and path[0] == messages and path[-2] == fields  # noqa: PLR2004
        if not text or not is_field or {*path[2:-2:2]} - {nested}:
            continue
        with suppress(IndexError):  # a registered descriptor may have any path; no record depends on a comment
            message, names = file.message_type[path[1]], [file.package] if file.package else []
            for index in path[3:-2:2]:
                names.append(message.name)
                message = message.nested_type[index]
            yield ".".join([*names, message.name, message.field[path[-1]].name]), text


@lru_cache(maxsize=_CACHED_SCHEMAS)
def _files(writer: WriterSchema) -> tuple[Sequence[FileDescriptorProto], Mapping[str, str]]:
    """Return the files of a schema, imported ones first, and the comments of its fields by their full names."""
    sources = {**{reference.name: reference.text for reference in writer.references}, _MAIN: writer.text}
    files = tuple(_from_descriptors(writer) or _compiled(sources))
    comments = {name: text for file in files for name, text in _comments(file)}
    for file in files:
        file.ClearField("source_code_info")  # it is larger than all other parts, and would be cached with the schema
    return files, comments


def _from_descriptors(writer: WriterSchema) -> list[FileDescriptorProto]:
    """Return the files of a schema that is registered as descriptors, imported ones first; none if it is registered as source."""
    main = _descriptor(_MAIN, writer.text)
    if main is None:
        return []
    files: list[FileDescriptorProto] = []
    for reference in writer.references:
        if (descriptor := _descriptor(reference.name, reference.text)) is None:
            raise unusable_schema(f"a descriptor that refers to source: {reference.name}")
        files.append(descriptor)
    files.append(main)
    file_names = {file.name for file in files}
    return _library_files({name for file in files for name in file.dependency} - file_names, file_names) + files


def _library_files(names: Iterable[str], own_files: set[str]) -> list[FileDescriptorProto]:
    missing_files = sorted(names)
    if not missing_files:
        return []
    imports = "".join(f'import "{name}";\n' for name in missing_files if '"' not in name and "\\" not in name)
    return [file for file in _compiled({_MAIN: f'syntax = "proto3";\n{imports}'})[:-1] if file.name not in own_files]


def _descriptor(name: str, text: str) -> FileDescriptorProto | None:
    if _BASE64.fullmatch(text) is None:
        return None
    try:
        descriptor = FileDescriptorProto.FromString(base64.b64decode(text))
    except (binascii.Error, DecodeError):
        return None
    descriptor.name = name
    return descriptor


def _compiled(sources: Mapping[str, str]) -> list[FileDescriptorProto]:
    """Return the files that `protoc` makes of sources, each after those that it imports, the main one last."""
    with TemporaryDirectory(prefix="frazil-protoc-") as folder:
        root, built = Path(folder, "source"), Path(folder, "built")
        for name, text in {**IMPORTS, **sources}.items():
            _write(root, name, text)
        _run_protoc(root, built)
        return list(FileDescriptorSet.FromString(built.read_bytes()).file)


def _write(root: Path, name: str, text: str) -> None:
    path = PurePosixPath(name)
    safe = name.isprintable() and "\\" not in name and len(name.encode()) <= _LONGEST_NAME
    if path.is_absolute() or ".." in path.parts or not path.parts or not safe:
        raise unusable_schema(f"a reference to a file named {name!r}")
    try:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode("utf-8", "backslashreplace"))
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as e:
        raise unusable_schema(f"a reference named {name!r}, which is also the folder of another one") from e


_LOGGED: Final = re.compile(r"WARNING: All log messages|[IWEF]\d{4} ")
"""The beginning of a line of protoc's log; a line about an error in a file begins otherwise."""


def _run_protoc(root: Path, built: Path) -> None:
    # protoc gets a process of its own: it recurses without limit, and prints errors instead of returning them.
    library_folder = resources.files("grpc_tools") / "_proto"
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{root}",
        f"-I{library_folder}",
        "--include_imports",
        "--include_source_info",
    ]
    try:
        process = subprocess.run(
            [*command, f"--descriptor_set_out={built}", _MAIN], capture_output=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired as e:
        raise BAD_SCHEMA.retryable(
            f"protoc: no result within {_SECONDS} s for a schema", next_step="look at the machine"
        ) from e
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").replace(f"{root}/", "").splitlines()
        errors = [line.removeprefix(f"{_MAIN}:").strip() for line in lines if _LOGGED.match(line) is None]
        raise unusable_schema(errors[0] if errors else f"protoc ended with {process.returncode}")
