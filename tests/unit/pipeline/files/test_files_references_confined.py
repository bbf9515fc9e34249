"""The author of a pipeline or capture file can only reach that file, the schemas beside it, and allowed references."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from frazil.cli.files.verdict import judge
from frazil.pipeline.files.files import MAX_BYTES, References, stated_owner
from frazil.pipeline.files.folder import Pipelines, load_capture
from frazil.pipeline.files.load import ConfigError, load_pipeline, load_settings
from frazil.run.staging.record_problems import record_problems

SECRET = "hunter2-of-the-store"
ENV = {"REGION": "north", "STORE_SECRET": SECRET}

SETTINGS = """\
clusters: {local: {bootstrap_servers: "127.0.0.1:1", properties: {sasl.password: "${env:STORE_SECRET}"}}}
catalogs: {lake: {uri: "sqlite:////nowhere/catalog.db", warehouse: "file:///nowhere"}}
"""

PIPELINE = """\
name: orders
source: {topics: [orders]}
destinations:
  - table: shop.orders
    columns: {id: long}
"""

CAPTURE = """\
capture: file
name: access_log
topic: access-log
paths: [/var/log/shop/access.log]
"""

LAUGHS = "x0: &x0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 10)
)
"""600 bytes that stand for three billion values."""

Refused = Callable[[str], list[str]]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with settings, pipelines, captures and schemas."""
    for name in ("pipelines", "captures", "schemas"):
        (tmp_path / name).mkdir()
    (tmp_path / "settings.yaml").write_text(SETTINGS)
    (tmp_path / "pipelines/orders.yaml").write_text(PIPELINE)
    (tmp_path / "captures/access_log.yaml").write_text(CAPTURE)
    return tmp_path


def judged(project: Path) -> dict[str, tuple[str, ...]]:
    """The problems of each file, as `frazil validate` shows them."""
    variables = {
        "FRAZIL_HOME": str(project / "home"),
        "FRAZIL_SETTINGS": str(project / "settings.yaml"),
        "FRAZIL_PIPELINES": str(project / "pipelines"),
    }
    return {Path(verdict.file).name: verdict.problems for verdict in judge([], ENV | variables)}


def problems_of(path: Path, references: References) -> list[str]:
    """The problems of a pipeline file."""
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path, references)
    assert caught.value.__context__ is None or SECRET not in str(caught.value.__context__)
    return caught.value.problems


@pytest.mark.parametrize("file", ["pipelines/orders.yaml", "captures/access_log.yaml"])
@pytest.mark.parametrize(
    "reference", ["${env:STORE_SECRET}", "${file:/etc/passwd:root}", "${airflow:store:password}", "${local:home}"]
)
def test_reference_in_a_pipeline_or_capture_file_is_refused_by_name(project: Path, file: str, reference: str) -> None:
    """The error names file, key path and the setting that would allow it; nothing is resolved."""
    with (project / file).open("a") as stream:
        stream.write(f'description: "a {reference} b"\n')

    (problem,) = judged(project)[Path(file).name]

    assert problem.startswith(f"description: {reference} is refused")
    assert f'references: {{allow: ["{reference[2:-1]}"]}}' in problem
    assert SECRET not in problem


def test_reference_that_the_settings_allow_is_resolved_and_never_quoted(project: Path) -> None:
    """A pipeline gets the value of an allowed reference; errors show the reference in place of the value."""
    (project / "settings.yaml").write_text(SETTINGS + 'references: {allow: ["env:REGION", "env:STORE_SECRET"]}\n')
    orders = project / "pipelines/orders.yaml"
    orders.write_text(PIPELINE.replace("[orders]", '["orders-${env:REGION}"]'))
    allowed = References(ENV, {}).allowing(["env:REGION", "env:STORE_SECRET"])

    assert judged(project)["orders.yaml"] == ()
    assert load_pipeline(orders, allowed).source.topics == ("orders-north",)

    orders.write_text(PIPELINE.replace("[orders]", '[orders], cluster: "${env:STORE_SECRET}"'))
    (problem,) = judged(project)["orders.yaml"]
    assert problem.startswith("source.cluster: the settings have no '${env:STORE_SECRET}' under clusters")
    assert Pipelines(project / "pipelines", allowed).hidden(f"no {SECRET!r}") == "no '${env:STORE_SECRET}'"


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ("name: orders", 'name: "${env:STORE_SECRET}!"', "name"),
        ("[orders]", '["a b ${env:STORE_SECRET}"]', "source.topics.0"),
        ("{id: long}", '{id: "${env:STORE_SECRET}"}', "destinations.0.columns.id"),
        ("{id: long}", '{id: long}, partition_by: ["day(${env:STORE_SECRET})"]', "destinations.0.partition_by.0"),
        ("name: orders", 'name: orders\ninterval: "${env:STORE_SECRET}"', "interval"),
        ("name: orders", 'name: orders\nlimits: {max_records: "${env:STORE_SECRET}"}', "limits.max_records"),
        ("name: orders", 'name: orders\ntransforms: [{type: "${env:STORE_SECRET}"}]', "transforms.0"),
    ],
)
def test_complaint_about_a_pipeline_does_not_quote_values_of_references(
    tmp_path: Path, old: str, new: str, where: str
) -> None:
    """This also holds if the model's own error quotes the refused value."""
    path = tmp_path / "orders.yaml"
    path.write_text(PIPELINE.replace(old, new).replace("}, partition_by", ", id2: long}\n    partition_by").rstrip("}"))

    problems = problems_of(path, References(ENV, {}).allowing(["env:STORE_SECRET"]))

    assert problems
    assert all(SECRET not in problem for problem in problems)
    assert any(problem.startswith(where) for problem in problems)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bootstrap_servers:", 'bootstrap_server: "${env:STORE_SECRET}", bootstrap_servers:'),
        ('uri: "sqlite:////nowhere/catalog.db"', 'type: "${env:STORE_SECRET}", uri: "x"'),
        ('uri: "sqlite:////nowhere/catalog.db"', 'uri: "${env:STORE_SECRET}"'),
        ("clusters:", 'captures: {positions: "${env:STORE_SECRET}!"}\nclusters:'),
        ("clusters:", 'engines: {"a": {type: connect, url: "${env:STORE_SECRET}"}}\nclusters:'),
        ("clusters:", 'engines: {"a": {pool: [1], master: ["${env:STORE_SECRET}"]}}\nclusters:'),
        ("clusters:", 'databases: {a: {url: "${env:STORE_SECRET}", driver: x}}\nclusters:'),
        ("clusters:", 'reports: {older_than: "${env:STORE_SECRET}", keep: "${env:STORE_SECRET}"}\nclusters:'),
        ("clusters:", 'references: {allow: ["${env:STORE_SECRET}"]}\nclusters:'),
    ],
)
def test_complaint_about_settings_does_not_quote_values_of_references(tmp_path: Path, old: str, new: str) -> None:
    """Neither does the chained error, which a traceback would print."""
    path = tmp_path / "settings.yaml"
    path.write_text(SETTINGS.replace(old, new, 1))

    with pytest.raises(ConfigError) as caught:
        load_settings(path, References(ENV, {}))

    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_second_dollar_makes_a_reference_plain_text(tmp_path: Path) -> None:
    """`$${env:X}` is the text `${env:X}`, in pipelines and settings; variables of transforms are no references."""
    path = tmp_path / "orders.yaml"
    path.write_text(PIPELINE + 'description: "$${env:STORE_SECRET} ${topic} $1"\n')

    assert load_pipeline(path, References(ENV, {})).description == "${env:STORE_SECRET} ${topic} $1"


def test_text_that_only_begins_like_references_is_read_at_once(tmp_path: Path) -> None:
    """The search for references takes time proportional to the text."""
    path = tmp_path / "orders.yaml"
    path.write_text(PIPELINE + f'description: "{"${a:" * 100_000}{"${a" + ":-" * 200_000}"\n')
    began = time.monotonic()

    load_pipeline(path, References({}, {}))

    assert time.monotonic() - began < 20


@pytest.mark.parametrize("file", ["settings.yaml", "pipelines/orders.yaml", "captures/access_log.yaml"])
def test_aliases_that_expand_to_billions_of_values_are_refused(project: Path, file: str) -> None:
    """600 bytes of settings, pipelines or captures can't occupy a process."""
    path = project / file
    path.write_text(LAUGHS + path.read_text())

    (problem,) = judged(project)[path.name]

    assert problem.startswith("line 6: expected at most 100,000 values, aliases (*) counted as what they stand for")


def test_alias_that_repeats_little_is_accepted(tmp_path: Path) -> None:
    """Anchors may repeat a list of columns for two tables."""
    path = tmp_path / "orders.yaml"
    path.write_text(
        PIPELINE.replace("{id: long}", "&columns {id: long}") + "  - {table: shop.copies, columns: *columns}\n"
    )

    first, second = load_pipeline(path, References({}, {})).destinations

    assert first.columns == second.columns


@pytest.mark.parametrize(
    "text",
    ["owner: " + "[" * 300_000, "".join(f"{' ' * n}a:\n" for n in range(1_000)), "owner: &a [*a]", "a: " + "{a: " * 70],
)
def test_values_deep_within_each_other_are_refused_with_their_line(tmp_path: Path, text: str) -> None:
    """No form of nesting exceeds the stack of any reader."""
    path = tmp_path / "orders.yaml"
    path.write_text(text)

    (problem,) = problems_of(path, References({}, {}))

    assert problem.startswith("line ")
    assert stated_owner(path) is None


@pytest.mark.parametrize("kind", ["device", "pipe", "large", "link out", "loop", "absent"])
def test_pipeline_file_behind_a_link_is_not_read(project: Path, kind: str) -> None:
    """Git stores links, so a pull request may add one to any place."""
    path = project / "pipelines/orders.yaml"
    path.unlink()
    spoiled(path, project, kind)

    (problem,) = problems_of(path, References(ENV, {}))

    assert SECRET not in problem
    if kind != "absent":
        pipelines = Pipelines(project / "pipelines", References(ENV, {}))
        assert pipelines.find("orders") is None
        assert [error.file for error in pipelines.broken] == [path]


@pytest.mark.parametrize("kind", ["device", "pipe", "large", "link out", "loop", "absent"])
@pytest.mark.parametrize("half", ["value", "key"])
def test_schema_file_that_is_no_plain_file_is_not_read(project: Path, kind: str, half: str) -> None:
    """A device, a pipe, a large file and a link out of the folder are refused at their key without delay."""
    spoiled(project / "schemas/order.avsc", project, kind)
    path = project / "pipelines/orders.yaml"
    path.write_text(PIPELINE + f"{half}: {{format: avro, schema_file: order.avsc}}\n")

    (problem,) = problems_of(path, References(ENV, {}))

    assert problem.startswith(f"{half}.schema_file: {project / 'schemas/order.avsc'}")
    assert SECRET not in problem


@pytest.mark.parametrize(
    "name", ["../secret.avsc", "/dev/zero", "/etc/passwd", "../../../../../../../etc/passwd", ".."]
)
def test_schema_file_outside_of_its_folder_is_refused(project: Path, name: str) -> None:
    """This holds for every form of such a path."""
    (project / "secret.avsc").write_text(SECRET)
    path = project / "pipelines/orders.yaml"
    path.write_text(PIPELINE + f"value: {{format: avro, schema_file: {name}}}\n")

    (problem,) = problems_of(path, References({}, {}))

    assert problem.startswith("value.schema_file: ")
    assert problem.endswith(f"is outside of {project / 'schemas'}: only files of that folder are read")


def test_schema_file_behind_links_of_a_mounted_config_map_is_read(project: Path) -> None:
    """Kubernetes mounts files as links within their folder, and git-sync makes the folder itself a link."""
    shown = project / "schemas"
    (shown / "..2026").mkdir()
    (shown / "..2026/order.avsc").write_text(
        '{"type": "record", "name": "o", "fields": [{"name": "id", "type": "long"}]}'
    )
    (shown / "..data").symlink_to("..2026")
    (shown / "order.avsc").symlink_to("..data/order.avsc")
    (project / "pipelines/orders.yaml").write_text(PIPELINE + "value: {format: avro, schema_file: order.avsc}\n")
    (project / "link").symlink_to(project)

    assert record_problems(load_pipeline(project / "link/pipelines/orders.yaml", References({}, {}))) == ()


def test_proto_file_that_imports_its_neighbours_compiles(project: Path) -> None:
    """Imports relative to the folder of schemas, imports relative to the file's folder, and nested imports work."""
    shop = project / "schemas/shop"
    shop.mkdir()
    (shop / "order.proto").write_text(
        'syntax = "proto3";\npackage shop;\nimport "money.proto";\nimport public "shop/people.proto";\n'
        'import "google/protobuf/timestamp.proto";\n'
        "message Order { int64 id = 1; Money price = 2; Customer customer = 3; google.protobuf.Timestamp at = 4; }\n"
    )
    (shop / "money.proto").write_text(
        'syntax = "proto3"; package shop;\n  import "common/unit.proto";\nmessage Money { int64 cents = 1; Unit unit = 2; }'
    )
    (shop / "people.proto").write_text('syntax = "proto3"; package shop; message Customer { string name = 1; }')
    (project / "schemas/common").mkdir()
    (project / "schemas/common/unit.proto").write_text('syntax = "proto3"; package shop; enum Unit { EUR = 0; }')
    path = project / "pipelines/orders.yaml"
    path.write_text(
        PIPELINE.replace("{id: long}", "{id: long, cents: {type: long, from: [price, cents]}}")
        + "value: {format: protobuf, schema_file: shop/order.proto, message: Order}\n"
    )

    pipeline = load_pipeline(path, References({}, {}))
    before = pipeline.outcome_fingerprint
    assert record_problems(pipeline) == ()

    (shop / "people.proto").write_text('syntax = "proto3"; package shop; message Customer { int64 id = 1; }')
    assert load_pipeline(path, References({}, {})).outcome_fingerprint != before


@pytest.mark.parametrize("name", ["../secret.proto", "secret.proto", "/dev/zero"])
def test_proto_file_imports_nothing_from_outside_of_its_folder(project: Path, name: str) -> None:
    """A link out of the folder is not followed, and an import path with `..` is refused."""
    (project / "secret.proto").write_text(SECRET)
    (project / "schemas/secret.proto").symlink_to(project / "secret.proto")
    (project / "schemas/order.proto").write_text(f'import "{name}";')
    path = project / "pipelines/orders.yaml"
    path.write_text(PIPELINE + "value: {format: protobuf, schema_file: order.proto, message: Order}\n")

    (problem,) = problems_of(path, References({}, {}))

    assert problem.startswith("value.schema_file: ")
    assert "is outside of" in problem
    assert SECRET not in problem


def test_imports_of_a_proto_file_are_bounded_together(project: Path) -> None:
    """Each import is small, but all together exceed the bound."""
    names = [f"part{n}.proto" for n in range(20)]
    for name in names:
        (project / "schemas" / name).write_text("//" + "x" * (MAX_BYTES // 10))
    (project / "schemas/order.proto").write_text("".join(f'import "{name}";\n' for name in names))
    path = project / "pipelines/orders.yaml"
    path.write_text(PIPELINE + "value: {format: protobuf, schema_file: order.proto, message: Order}\n")

    assert problems_of(path, References({}, {})) == [
        f"value.schema_file: expected at most {MAX_BYTES:,} bytes with all imports, found more"
    ]


def test_capture_file_that_leads_out_of_its_folder_is_not_read(project: Path) -> None:
    """Capture files are confined like pipeline files."""
    path = project / "captures/access_log.yaml"
    path.unlink()
    spoiled(path, project, "link out")

    with pytest.raises(ConfigError, match="is outside of"):
        load_capture(path, References({}, {}))


def spoiled(path: Path, project: Path, kind: str) -> None:
    """Put something at a path that must not be read as a file of the project."""
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.write_text("#" * (MAX_BYTES + 1))
    elif kind == "link out":
        (project / "secret.yaml").write_text(f"name: {SECRET}")
        path.symlink_to(project / "secret.yaml")
    elif kind == "loop":
        path.symlink_to(path.name)
