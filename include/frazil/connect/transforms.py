"""Chains of transforms (SMTs) and their predicates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from frazil.connect.findings import ConnectorKeys
from frazil.pipeline.models.changes import FACTS
from frazil.pipeline.syntax.types import StructOf, parse_type
from frazil.pipeline.transforms import KINDS, TransformStep
from frazil.records.transforms.catalogue import PREDICATES, TRANSFORMS
from frazil.records.transforms.definition import KAFKA, SINK, ConnectClass, options_of

_STEP: Final[TypeAdapter[Any]] = TypeAdapter(TransformStep)

_TABULAR: Final = "io.tabular.iceberg.connect.transforms."
"""Where the sink's transforms were before Apache had them."""

_BY_CLASS: Final = {
    kind.connect_class.name: (name, kind.connect_class)
    for name, kind in TRANSFORMS.items()
    if kind.connect_class is not None
}
"""Transforms by the class that they stand for."""

_UNWRAP: Final = "ExtractNewRecordState"
_NO_OPTION: Final = {
    "replace.null.with.default": "a null stays null",
    "drop.tombstones": "tombstones are left out before transforms, as the sink ignores them",
    "drop.fields.from.key": "keys reach no table, there as here",
}
"""Options without effect here, and why."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The key `transforms` of the pipeline file.

    Attributes:
        steps: Its entries.
        reads_text: The values were text that a transform reads as JSON objects, so the format is `json`.
    """

    steps: tuple[dict[str, Any], ...] = ()
    reads_text: bool = False


def works_on_keys(keys: ConnectorKeys) -> bool:
    """Whether a transform works on decoded keys."""
    for alias in _names(keys.get("transforms")):
        class_name = keys.get(f"transforms.{alias}.type") or ""
        if class_name.endswith("$Key"):
            return True
        if class_name.endswith(".ValueToKey"):
            return False
    return False


def chain(
    keys: ConnectorKeys,
    value_format: str | None,
    *,
    has_key: bool = False,
    columns: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
) -> Chain:
    """The transforms of a connector, in their order. `columns` of its tables say what documents contain; None: not yet."""
    aliases = _names(keys.get("transforms"))
    if len(set(aliases)) < len(aliases):
        keys.say("transforms", "refused", "a name occurs twice", "name each transform once")
        return Chain()
    if aliases:
        keys.say("transforms", "carried", "transforms")
    predicates = {alias: _predicate(keys, alias) for alias in _names(keys.get("predicates"))}
    if predicates:
        keys.say("predicates", "carried", "transforms: when")
    steps: list[dict[str, Any]] = []
    reads_text = False
    for alias in aliases:
        step = _step(keys, alias, predicates)
        if step is None:
            continue
        if not steps and value_format == "string" and _reads_objects(step):
            why = "value.format: json, whose types the columns declare; the sink guesses them per record"
            keys.say(f"transforms.{alias}.type", "changed", why)
            reads_text = True
            continue
        if step.get("target") == "key" and not has_key:
            why = "keys can't be decoded as the connector does it, so it is left out; no key reaches a table"
            keys.say(f"transforms.{alias}.type", "not_supported", why, "declare key: in the pipeline file")
            continue
        if step["type"] == "MongoDebezium" and columns is not None:
            step |= _document_types(keys, alias, columns)
        has_key |= step["type"] == "ValueToKey"
        steps.append(step)
    _unused(keys, aliases, predicates)
    if value_format == "json" and any(step["type"] == _UNWRAP for step in steps):
        keys.note(f"{_UNWRAP} passes JSON without schemas on as it is; here it is unwrapped as well.")
    return Chain(tuple(steps), reads_text)


def _document_types(
    keys: ConnectorKeys, alias: str, columns: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, str]:
    """Types of the fields of MongoDB's documents, as the columns have them: without, documents stay texts."""
    types = {name: str(options["type"]) for table in columns.values() for name, options in table.items()}
    types.pop(FACTS, None)
    try:
        fields = tuple((name, parse_type(text)) for name, text in types.items())
    except ValueError as error:
        keys.say(f"transforms.{alias}.type", "refused", f"a column's type can't be read: {error}")
        return {}
    if not fields:
        why = "documents have the types of their columns, and nothing tells them"
        keys.say(f"transforms.{alias}.type", "refused", why, "give them: --columns FILE, or --catalog NAME")
    return {"types": str(StructOf(fields))} if fields else {}


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _step(keys: ConnectorKeys, alias: str, predicates: dict[str, dict[str, Any] | None]) -> dict[str, Any] | None:
    """One transform entry, checked against its model; None if a connector's transform can't be imported."""
    prefix = f"transforms.{alias}."
    options = keys.below(prefix)
    class_name = options.pop("type", None)
    if class_name is None:
        keys.say("transforms", "refused", f"{prefix}type is missing", "name its class")
        return None
    when = _when(keys, alias, options, predicates)
    if when and when["predicate"] == "RecordIsTombstone":
        keys.say(f"{prefix}predicate", "changed", "tombstones are dropped before transforms (value.null_value: filter)")
        if not when.get("negate"):
            for option in ("type", *options):
                keys.say(prefix + option, "changed", "it is for tombstones, which are dropped before transforms")
            return None
        when = None
    plain, _, half = class_name.partition("$")
    if (definition := _BY_CLASS.get(plain.replace(_TABULAR, SINK))) is not None:
        entry = {"type": definition[0], **_options(keys, alias, *definition, options)}
        entry |= {"target": half.lower()} if half == "Key" else {}
    else:
        by_hand = "write it as a transform of Frazil's, Sql among them, or bring an own one: docs/transforms.md"
        keys.say(f"{prefix}type", "refused", "Frazil has no such transform", by_hand)
        return None
    return _checked(keys, prefix, {**entry, **({"when": when} if when else {})}, options)


def _options(
    keys: ConnectorKeys, alias: str, name: str, connect_class: ConnectClass, options: dict[str, str]
) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    model = KINDS[name].model_fields
    spellings = {field.alias or attribute for attribute, field in model.items()} - {"type", "when", "target"}
    for written, value in options.items():
        key, option = f"transforms.{alias}.{written}", connect_class.renames.get(written, written)
        if option in entry:
            keys.say(key, "refused", f"an option of {name} is written in two spellings", "remove the wrong one")
        elif option in spellings:
            entry[option] = value
        elif option in _NO_OPTION:
            keys.say(key, "changed", _NO_OPTION[option])
        else:
            keys.say(key, "not_supported", f"Frazil's {name} has no such option")
    if connect_class.note:
        keys.note(connect_class.note)
    return entry | {option: value for option, value in connect_class.defaults.items() if option not in entry}


def _checked(keys: ConnectorKeys, prefix: str, entry: dict[str, Any], options: dict[str, str]) -> dict[str, Any] | None:
    """The entry if its model takes it."""
    try:
        _STEP.validate_python(entry)
    except ValidationError as error:
        complaints = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'][1:])} {problem['msg']}".strip()
            for problem in error.errors(include_input=False, include_url=False)
        )
        keys.say(f"{prefix}type", "refused", f"{entry['type']} does not take these options: {complaints}")
        return None
    keys.say(f"{prefix}type", "carried", f"transforms: {entry['type']}")
    for option in options:
        keys.say(prefix + option, "carried", f"transforms: {entry['type']}")
    return entry


def _reads_objects(step: dict[str, Any]) -> bool:
    """Whether a step makes JSON objects of texts, as the format `json` does."""
    return step["type"] == "JsonToMap" and "when" not in step and str(step.get("json.root", "false")).lower() != "true"


def _when(
    keys: ConnectorKeys, alias: str, options: dict[str, str], predicates: dict[str, dict[str, Any] | None]
) -> dict[str, Any] | None:
    prefix = f"transforms.{alias}."
    name, negate = options.pop("predicate", None), options.pop("negate", "false").lower() == "true"
    if name is None:
        return None
    if name not in predicates:
        keys.say(f"{prefix}predicate", "refused", "predicates does not name this one", "name it under predicates")
        return None
    keys.say(f"{prefix}predicate", "carried", "transforms: when")
    keys.say(f"{prefix}negate", "carried", "transforms: when.negate")
    predicate = predicates[name]
    return {**predicate, **({"negate": True} if negate else {})} if predicate else None


def _predicate(keys: ConnectorKeys, alias: str) -> dict[str, Any] | None:
    prefix = f"predicates.{alias}."
    options = keys.below(prefix)
    name = (options.pop("type", "")).removeprefix(f"{KAFKA}predicates.")
    if name not in PREDICATES or options.keys() != options_of(PREDICATES[name]).keys():
        keys.say(f"{prefix}type", "refused", "no predicate of Kafka Connect, or not with these options")
        keys.say("predicates", "refused", f"{prefix}type is missing or unusable")
        return None
    for option in ("type", *options):
        keys.say(prefix + option, "carried", "transforms: when")
    return {"predicate": name, **options}


def _unused(keys: ConnectorKeys, aliases: list[str], predicates: dict[str, dict[str, Any] | None]) -> None:
    used = {keys.get(f"transforms.{alias}.predicate") for alias in aliases}
    for name in predicates.keys() - used:
        for option in keys.below(f"predicates.{name}."):
            keys.say(
                f"predicates.{name}.{option}",
                "changed",
                "no transform uses it, so it has no effect in Kafka Connect either",
            )
    for alias in aliases:
        if f"transforms.{alias}.negate" in keys:
            keys.say(f"transforms.{alias}.negate", "changed", "without a predicate it has no effect")
