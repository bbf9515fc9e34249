"""Verify against whoever registers schemas and produces records: it names what it does not judge, and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.pipeline.value import Value
from frazil.verify.values.formats import Decode, format_decoder
from frazil.verify.values.native import UnjudgedError

PROTO = 'syntax = "proto3"; message Order { int64 id = 1; }'


def of_registry(form: str, text: str, imports: dict[str, str] | None = None) -> Decode:
    """The reader of values whose schema a registry has."""
    found = format_decoder(Value.model_validate({"format": form, "registry": "r"}), lambda _: (text, imports or {}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name", ["{}/own.proto", "../../{}/own.proto", "a/../../own.proto", "", ".", "a\0b", "x" * 999]
)
def test_reference_writes_no_file_outside_the_schema(tmp_path: Path, name: str) -> None:
    """Whoever may register schemas chooses the names of references."""
    decode = of_registry("protobuf", PROTO, {name.format(tmp_path): "written"})

    with pytest.raises(UnjudgedError, match="schema"):
        decode(b"\0\0\0\0\1\0\x08\x01", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["verified.proto/x", "google/type/date.proto/x"])
def test_reference_that_is_a_folder_too_is_not_judged(name: str) -> None:
    """One name can't be both."""
    with pytest.raises(UnjudgedError, match="schema"):
        of_registry("protobuf", PROTO, {name: PROTO})(b"\0\0\0\0\1\0\x08\x01", {})


@pytest.mark.parametrize("name", ["grpc_tools/__init__.py", "sitecustomize.py", "pathlib.py"])
def test_reference_is_not_run_as_python(tmp_path: Path, name: str) -> None:
    """The compiler does not take its modules from the folder of the schema."""
    code = f"open({str(tmp_path / 'own')!r}, 'w').close()"

    assert of_registry("protobuf", PROTO, {name: code})(b"\0\0\0\0\1\0\x08\x01", {}) == {"id": 1}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("path", "name"), [(b"\0", "a"), (b"\2\0", "a"), (b"\2\2", "b"), (b"\4\2\2", "d")])
def test_numbers_in_front_lead_to_the_message(path: bytes, name: str) -> None:
    """By its place among the messages of the file, then of the message."""
    text = """syntax = "proto3"; message Z { int64 a = 1; }
        message M { int64 b = 1; message Y { int64 c = 1; } message K { int64 d = 1; } }"""

    assert of_registry("protobuf", text)(b"\0\0\0\0\1" + path + b"\x08\x01", {}) == {name: 1}
