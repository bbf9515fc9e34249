"""Records whose keys are data, undeclared, through transforms: what they cost is bounded, and nobody else pays for it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from time import process_time
from typing import Any

import pyarrow as pa
import pytest

from frazil.records.decoder.decode import Decoder
from frazil.records.decoder.value_decoder import value_agreement
from frazil.records.evolution.inferred import InferredJson
from frazil.records.evolution.types import leaf_paths
from frazil.records.model.dead_letter import DeadCode
from frazil.records.model.format import Transform
from frazil.records.model.rows import Outcomes
from frazil.records.model.spec import Evolution, RecordSpec
from frazil.records.transforms.catalogue import TRANSFORMS, transform
from frazil.records.transforms.definition import TransformDefinition
from frazil.records.transforms.kinds.conditions import Filter, TopicNameMatches, When, named_fields
from frazil.records.transforms.kinds.field_values import MaskField
from frazil.records.transforms.kinds.nested import Flatten
from tests.unit.records.chains import any_options
from tests.unit.records.evolution import webhooks
from tests.unit.records.evolution.evolving import TABLE, Untouched, land, spec, transformed
from tests.unit.records.kafka_batches import kafka_batch

pytestmark = pytest.mark.unit

ID = pa.field("id", pa.int64())
NAMING: dict[str, Transform] = {
    "MaskField": transform("MaskField", {"fields": ["secret"]}),
    "InsertField": transform("InsertField", {"static_field": "source", "static_value": "web"}),
    "RenameField": transform("ReplaceField", {"renames": {"a": "b"}}),
    "Filter": When(Filter(), TopicNameMatches("nothing")),
    "Cast": transform("Cast", {"spec": {"a": "string"}}),
    "Sql": transform("Sql", {"select": "*, 1 AS added"}),
}
"""Transforms that name the fields they look at."""

OPENING: dict[str, Transform] = {
    "Flatten": transform("Flatten", {}),
    "Flatten_": transform("Flatten", {"delimiter": "_", "depth": 1, "lists": "json"}),
}
"""Transforms that make fields of their own of those in objects."""

LOOKING: dict[str, Transform] = {
    "HoistField": transform("HoistField", {"field": "outer"}),
    "own": Untouched(),
}
"""Transforms that look at all fields."""


def through(step: Transform, *columns: pa.Field, **options: Any) -> RecordSpec:
    """How records become rows of a table with few columns behind a transform."""
    evolving_spec = spec(columns or (ID,), Evolution(max_columns=20), **options)
    return replace(evolving_spec, infers=True, fields=evolving_spec.columns, transforms=(step,))


def decoded(values: list[Any], spec: RecordSpec, seconds: float) -> Outcomes:
    """What became of values, which takes CPU time below a bound: generous, as machines differ."""
    batch = kafka_batch([json.dumps(value).encode() for value in values])
    decoder = Decoder({TABLE: spec}, None, 1)
    began = process_time()
    outcomes = decoder.decode(batch)
    assert process_time() - began < seconds
    return outcomes


def keyed(records: int, *, deep: bool = False, names: int = 10) -> list[dict[str, Any]]:
    """Records whose names never come twice."""
    documents = ({f"user-{number:08x}-{key}": key for key in range(names)} for number in range(records))
    return [
        {"id": number, "users": document} if deep else {"id": number} | document
        for number, document in enumerate(documents)
    ]


@pytest.mark.parametrize(
    ("step", "deep"),
    [
        *((step, False) for step in (*NAMING.values(), *OPENING.values(), *LOOKING.values())),
        (NAMING["Filter"], True),
        (OPENING["Flatten"], True),
        (LOOKING["own"], True),
    ],
    ids=[*NAMING, *OPENING, *LOOKING, "Filter, in an object", "Flatten, in an object", "own, in an object"],
)
def test_names_beyond_the_limit_make_dead_letters_in_bounded_time(step: Transform, deep: bool) -> None:
    """The first records land as they would alone; those that bring more names are letters, and ordinary ones go on."""
    ordinary = {"id": -1}
    outcomes = decoded([*keyed(1_000, deep=deep), ordinary], through(step), 4)
    codes = outcomes.dead.column("code").to_pylist()
    assert set(codes) == {DeadCode.TOO_MANY_NAMES}
    assert 700 <= len(codes) < 1_000
    assert 1_100 not in outcomes.dead.column("offset").to_pylist()
    assert "found text" in outcomes.dead.column("message")[0].as_py()


@pytest.mark.parametrize("step", [NAMING["MaskField"], *OPENING.values(), *LOOKING.values(), NAMING["Sql"]])
def test_record_of_16000_names_is_a_dead_letter_at_once(step: Transform) -> None:
    """It has more names than transforms are given; its neighbours land."""
    outcomes = decoded([{"id": 1}, *keyed(4, names=16_000), {"id": 2}], through(step), 4)
    assert outcomes.dead.column("code").to_pylist() == [DeadCode.TOO_MANY_NAMES] * 4
    assert outcomes.dead.column("offset").to_pylist() == list(range(101, 105))


FEW = [f"f{key}" for key in range(30)]


@pytest.mark.parametrize("is_inside", [False, True], ids=["", "in an object"])
@pytest.mark.parametrize("step", [*NAMING.values(), *OPENING.values()], ids=[*NAMING, *OPENING])
def test_records_with_varying_optional_fields_are_decoded_together(step: Transform, is_inside: bool) -> None:
    """Thirty optional fields make a billion shapes, with nulls and empty lists even more: 2,000 of them are one."""
    chosen = random.Random(1)
    lists = FEW[20:]
    values: list[dict[str, Any]] = []
    for number in range(2_000):
        some = {name: chosen.choice([None, [], [1]] if name in lists else [None, 1]) for name in chosen.sample(FEW, 10)}
        values.append({"id": number} | ({"o": some} if is_inside else some))
    fields = [pa.field(name, pa.list_(pa.int64()) if name in lists else pa.int64()) for name in FEW]
    columns = fields
    if is_inside and isinstance(step, Flatten):
        columns = [field.with_name(f"o{step.delimiter}{field.name}") for field in fields]
    elif is_inside:
        columns = [pa.field("o", pa.struct(fields))]
    evolving_spec = through(step, ID, *columns)
    decoder = InferredJson(evolving_spec, evolving_spec.columns, value_agreement([evolving_spec]))
    shapes = decoder.decode(pa.array([json.dumps(value).encode() for value in values], pa.binary())).groups
    assert sum(len(shape.positions) for shape in shapes) == len(values)
    assert len(shapes) == 1


ELEMENT = pa.struct([("x", pa.int64())])


@pytest.mark.parametrize("is_behind", [False, True], ids=["", "transformed"])
@pytest.mark.parametrize(
    ("column", "around"),
    [
        (pa.list_(ELEMENT), lambda item: [item]),
        (pa.list_(ELEMENT), lambda item: [{name: value} for name, value in item.items()]),
        (pa.list_(pa.list_(ELEMENT)), lambda item: [[item]]),
        (pa.map_(pa.string(), ELEMENT), lambda item: {"k": item}),
        (None, lambda item: [item]),
    ],
)
def test_new_fields_of_elements_keep_to_the_limit_of_columns(column: Any, around: Any, is_behind: bool) -> None:
    """A field within a list or map counts like any other, in however many tasks it comes."""
    evolving_spec = spec([ID] if column is None else [ID, pa.field("items", column)], Evolution(max_columns=10))
    values = [{"id": number, "items": around({f"f{number}_{key}": 1 for key in range(8)})} for number in range(10)]
    landed = land([[value] for value in values], transformed(evolving_spec) if is_behind else evolving_spec)
    assert sum(1 for column_type in landed.columns.values() for _ in leaf_paths(column_type)) == 10 + len({"_rescued"})
    assert landed.codes == []


COLUMNS = (
    ID,
    pa.field("a", pa.string()),
    pa.field("given", pa.int64()),
    pa.field("needed", pa.int64(), nullable=False),
    pa.field("map", pa.map_(pa.string(), pa.int64())),
    pa.field("text", pa.string()),
    pa.field("o", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.float64())])), ("l", pa.list_(pa.int64()))])),
    pa.field("o.x", pa.int64()),
    pa.field("o.y", pa.string()),
    pa.field("o_y", pa.string()),
    pa.field("o.y.z", pa.float64()),
)
CHOICES: dict[str, list[Any]] = {
    "a": [1, "x", None],
    "A": [5],
    "b": [2.5],
    "given": [None, 7],
    "needed": [1, 1, 1, None],
    "secret": ["s", None, 3],
    "map": [
        {"k": 1, "l": 2},
        {"m": 3, "n": None},
        None,
        {},
        {"k": "x"},
        {"k": 1, "l": "x"},
        {"p": 1, "q": 2.5},
        {"r": [1]},
    ],
    "text": ["t", {"k": 1}, [1, "a"], 5],
    "new": [1, 2.5, "x", None, {}, [], {"p": 1}, {"p": None}],
    "source": ["s"],
    "added": [1],
    "o": [
        {},
        None,
        7,
        {"x": 1},
        {"x": None},
        {"x": "1"},
        {"y": {}},
        {"y": None, "l": []},
        {"y": {"z": 1}, "l": [1]},
        {"y": {"z": 1.5}, "x": 2},
        {"y": {"z": 1.5, "new": 1}},
        {"y": {"new": None, "z": 2.5}, "l": [None]},
        {"X": 4, "l": ["s"]},
        {"y": "text", "l": [{"p": 1}, {"q": None}]},
    ],
    "o.x": [5, None],
    "o.y": ["t", {"z": 2}, None],
    "o_y": ["t", {"z": 2}, None],
}


@pytest.mark.parametrize(
    ("unknown_fields", "case"), [("ignore", "exact"), ("rescue", "case_insensitive"), ("fail", "exact")]
)
@pytest.mark.parametrize("step", [*NAMING.values(), *OPENING.values()], ids=[*NAMING, *OPENING])
def test_record_is_the_same_with_and_without_neighbours(step: Transform, unknown_fields: str, case: str) -> None:
    """Defaults, required columns, nulls, renamed fields, maps and texts: as if each record came in a batch of its own."""
    rescued = [pa.field("_rescued", pa.string())]
    evolving_spec = through(
        step,
        *COLUMNS,
        *rescued,
        defaults={"given": 42, "o.y.z": 0.5},
        unknown_fields=unknown_fields,
        field_names=case,
        casts="text",
    )
    evolving_spec = replace(evolving_spec, evolution=Evolution(max_columns=0))
    chosen = random.Random(7)
    values = []
    for number in range(80):
        names = [name for name in CHOICES if chosen.random() < (0.9 if name == "needed" else 0.2)]
        values.append({"id": number} | {name: chosen.choice(CHOICES[name]) for name in names})
    at_once = land([values], evolving_spec)
    alone = land([[value] for value in values], evolving_spec)
    for number in range(len(values)):
        mine, second_row = at_once.row(0, number), alone.row(number, 0)
        assert (mine is None) == (second_row is None), values[number]
        if mine is not None and second_row is not None:
            assert [mine[name] for name in evolving_spec.columns.names] == [
                second_row[name] for name in evolving_spec.columns.names
            ]


@pytest.mark.parametrize(
    "column", [pa.field("users", pa.map_(pa.string(), pa.int64())), pa.field("users", pa.string())]
)
def test_declared_map_or_text_takes_keys_that_are_data(column: pa.Field) -> None:
    """Who declares that keys are data gets all of them: no name in there is one of a column."""
    outcomes = decoded(keyed(1_000, deep=True), through(NAMING["MaskField"], ID, column), 4)
    assert len(outcomes.dead) == 0
    users = outcomes.rows[TABLE].column("users")[7].as_py()
    assert dict(json.loads(users) if isinstance(users, str) else users)["user-00000007-3"] == 3


@pytest.mark.parametrize("step", [NAMING["MaskField"], OPENING["Flatten"]])
def test_wide_webhooks_go_through(step: Transform) -> None:
    """Five hundred names in all, each event with other ones: far below the bound."""
    events = [webhooks.pull_request_event(), webhooks.push_event(), webhooks.otlp_traces(), webhooks.otlp_logs()]
    fewer = [
        {name: item for name, item in event.items() if name != removed_name}
        for event in events
        for removed_name in [*event][::9]
    ]
    landed = land([[*events, *fewer]], replace(through(step, ID), evolution=spec().evolution))
    assert landed.codes == []


def test_transforms_that_read_all_fields_are_listed() -> None:
    """A new one is taken to look at all fields, until it says which it names."""
    options: dict[str, dict[str, Any]] = {
        "InsertField": {"topic_field": "t!"},
        "ReplaceField": {"include": ("i",), "exclude": ("e",), "renames": {"From": "to"}},
        "MaskField": {"fields": ("m",)},
        "Cast": {"spec": {"c": "string"}},
        "Explode": {"field": "x", "position_field": "at"},
        "ExtractField": {"field": "`p.q`.r"},
        "HoistField": {"field": "h"},
        "ValueToKey": {"fields": ("k",)},
        "TimestampConverter": {"field": "ts", "target_type": "Date"},
        "RegexRouter": {"regex": "a", "replacement": "b"},
        "HeaderFrom": {"fields": ("hf",), "headers": ("h",), "operation": "copy"},
        "InsertHeader": {"header": "h", "value_literal": "v"},
        "DropHeaders": {"headers": ("h",)},
        "CopyValue": {"source_field": "s", "target_field": "t"},
        "JsonToMap": {"json_root": True, "field": "j"},
        "Sql": {"select": "*, price * 2 AS twice", "where": "size > 1"},
    }
    named = {name: named_fields([transform(name, options.get(name) or any_options(name))]) for name in TRANSFORMS}
    looking = {"HoistField", "DebeziumTransform", "DmsTransform", "ExtractNewRecordState", "MongoDebezium"}
    silent = {
        name
        for name, definition in TRANSFORMS.items()
        if definition.uses_fields
        and not definition.reads
        and definition.referenced_names is TransformDefinition.referenced_names
    }
    assert looking <= silent == {name for name, form in named.items() if form is None}
    assert named_fields([When(transform("Flatten", {}), TopicNameMatches("t"))]) is None
    assert named["InsertField"] == frozenset({"t"})
    assert named["ReplaceField"] == frozenset({"i", "e", "from", "to"})
    assert named["ExtractField"] == frozenset({"`p.q`.r", "p.q"})
    assert named["Sql"] is not None
    assert {"price", "size", "twice"} <= named["Sql"]


def test_own_transform_that_extends_one_of_frazils_looks_at_all_fields() -> None:
    """It may read more than what it inherits names."""

    class Own(MaskField):
        """Somebody else's."""

    assert named_fields([MaskField(("secret",))]) == {"secret"}
    assert named_fields([Own(("secret",))]) is None


@pytest.mark.parametrize(
    "select", ["* EXCLUDE (a)", "* REPLACE (a + 1 AS a)", "*, upper(a)", "records AS whole", "COLUMNS(*)", "*, #1 AS a"]
)
def test_sql_with_unknown_fields_reads_all(select: str) -> None:
    """It may take any field: such records go through one shape after the other."""
    assert named_fields([transform("Sql", {"select": select})]) is None


WIDTH = 1_000
WIDE = [ID, *(pa.field(f"u{column}", pa.int64()) for column in range(WIDTH - 1)), pa.field("_rescued", pa.string())]


def wide_records(kind: str) -> list[dict[str, Any]]:
    """Records of few fields for a table of a thousand columns: ten of its names, one more that it does not have, or a bad value."""
    chosen = random.Random(1)
    match kind:
        case "known":
            fields = [dict.fromkeys(chosen.sample([f"u{n}" for n in range(WIDTH - 1)], 10), 1) for _ in range(4_000)]
        case "new":
            fields = [{f"v{n}": 1} for n in range(4_000)]
        case _:
            fields = [{f"u{n % (WIDTH - 1)}": True} for n in range(4_000)]
    return [{"id": number} | more for number, more in enumerate(fields)]


@pytest.mark.parametrize("step", [None, NAMING["MaskField"], OPENING["Flatten"]], ids=["", "MaskField", "Flatten"])
@pytest.mark.parametrize("kind", ["known", "new", "bad"])
def test_record_of_few_fields_does_not_cost_what_the_columns_of_its_table_cost(
    kind: str, step: Transform | None
) -> None:
    """Some 10,000 records a second, or dead letters; 250 a second when each column was visited for each record."""
    table = spec(WIDE, Evolution(max_columns=WIDTH), unknown_fields="rescue")
    if step is not None:
        table = replace(table, infers=True, fields=table.columns, transforms=(step,))
    outcomes = decoded(wide_records(kind), table, 3)
    (counts,) = outcomes.counts.values()
    assert counts.read == 4_000
    assert counts.written == 4_000 or kind != "known"


def test_records_of_many_known_names_cost_what_their_names_cost() -> None:
    """Each is of a shape of its own: some 10 a second with 1,900 names, a fifth of it when each name was looked for in all."""
    chosen = random.Random(1)
    values = [
        {"id": number} | {f"k{key}": chosen.choice([1, "a", 1.5, True]) for key in range(1_900)} for number in range(20)
    ]
    evolving_spec = replace(through(LOOKING["own"]), evolution=None)
    outcomes = decoded(values, evolving_spec, 6)
    assert outcomes.rows[TABLE].num_rows == len(values)
