"""Converters and transforms of a connector: the formats of values and keys with their Schema Registry, then the chain of
transforms (SMTs) with its predicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from frazil.connect.findings import ConnectorKeys, Outcome, Secrets
from frazil.pipeline.models.layout import FACTS
from frazil.pipeline.syntax.types import StructOf, parse_type
from frazil.pipeline.transforms import KINDS, TransformStep
from frazil.records.formats.catalogue import FORMATS
from frazil.records.transforms.catalogue import PREDICATES, TRANSFORMS
from frazil.records.transforms.definition import KAFKA, SINK, ConnectClass, options_of

_STEP: Final[TypeAdapter[Any]] = TypeAdapter(TransformStep)

_TABULAR: Final = "io.tabular.iceberg.connect.transforms."
"""Package of the sink's transforms in Tabular's releases."""

_BY_CLASS: Final = {
    kind.connect_class.name: (name, kind.connect_class)
    for name, kind in TRANSFORMS.items()
    if kind.connect_class is not None
}
"""Class of Kafka Connect -> transform of Frazil."""

_UNWRAP: Final = "ExtractNewRecordState"
_NO_OPTION: Final = {
    "replace.null.with.default": "a null stays null",
    "drop.tombstones": "tombstones are left out before transforms, as the sink ignores them",
    "drop.fields.from.key": "keys reach no table, there as here",
}
"""Options that Frazil does not need, and why."""


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
    """The transforms of a connector, in their order. `columns` by table give types to MongoDB's documents; None: not yet known."""
    aliases = _names(keys.get("transforms"))
    if len(set(aliases)) < len(aliases):
        keys.report("transforms", "refused", "a name occurs twice", "name each transform once")
        return Chain()
    if aliases:
        keys.report("transforms", "carried", "transforms")
    predicates = {alias: _predicate(keys, alias) for alias in _names(keys.get("predicates"))}
    if predicates:
        keys.report("predicates", "carried", "transforms: when")
    steps: list[dict[str, Any]] = []
    reads_text = False
    for alias in aliases:
        step = _step(keys, alias, predicates)
        if step is None:
            continue
        if not steps and value_format == "string" and _reads_objects(step):
            why = "value.format: json, whose types the columns declare; the sink guesses them per record"
            keys.report(f"transforms.{alias}.type", "changed", why)
            reads_text = True
            continue
        if step.get("target") == "key" and not has_key:
            why = "Frazil can't decode keys as the connector does, so the transform is left out; no key reaches a table"
            keys.report(f"transforms.{alias}.type", "not_supported", why, "declare key: in the pipeline file")
            continue
        if step["type"] == "MongoDebezium" and columns is not None:
            step |= _document_types(keys, alias, columns)
        has_key |= step["type"] == "ValueToKey"
        steps.append(step)
    _unused(keys, aliases, predicates)
    if value_format == "json" and any(step["type"] == _UNWRAP for step in steps):
        keys.note(f"In Kafka Connect {_UNWRAP} leaves JSON without schemas unchanged; in Frazil it unwraps it as well.")
    return Chain(tuple(steps), reads_text)


def _document_types(
    keys: ConnectorKeys, alias: str, columns: Mapping[str, Mapping[str, Mapping[str, Any]]]
) -> dict[str, str]:
    """The types of the fields of MongoDB's documents, taken from the columns. Without them, documents would stay texts."""
    types = {name: str(options["type"]) for table in columns.values() for name, options in table.items()}
    types.pop(FACTS, None)
    try:
        fields = tuple((name, parse_type(text)) for name, text in types.items())
    except ValueError as error:
        keys.report(f"transforms.{alias}.type", "refused", f"a column's type can't be read: {error}")
        return {}
    if not fields:
        why = "documents get the types of their columns, which are unknown"
        keys.report(f"transforms.{alias}.type", "refused", why, "give them: --columns FILE, or --catalog NAME")
    return {"types": str(StructOf(fields))} if fields else {}


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _step(keys: ConnectorKeys, alias: str, predicates: dict[str, dict[str, Any] | None]) -> dict[str, Any] | None:
    """An entry of `transforms`, checked against its model; None if the connector's transform can't or need not be imported."""
    prefix = f"transforms.{alias}."
    options = keys.below(prefix)
    class_name = options.pop("type", None)
    if class_name is None:
        keys.report("transforms", "refused", f"{prefix}type is missing", "name its class")
        return None
    when = _when(keys, alias, options, predicates)
    if when and when["predicate"] == "RecordIsTombstone":
        keys.report(
            f"{prefix}predicate", "changed", "tombstones are dropped before transforms (value.null_value: filter)"
        )
        if not when.get("negate"):
            for option in ("type", *options):
                keys.report(prefix + option, "changed", "it is for tombstones, which are dropped before transforms")
            return None
        keys.report(f"{prefix}negate", "changed", "it is for records with a value, as all are that transforms see")
        when = None
    transform_class, _, part = class_name.partition("$")
    if (definition := _BY_CLASS.get(transform_class.replace(_TABULAR, SINK))) is None:
        by_hand = "use transforms of Frazil, such as Sql, or write one: docs/transforms.md"
        keys.report(f"{prefix}type", "refused", "Frazil has no such transform", by_hand)
        return None
    entry = {"type": definition[0], **_options(keys, alias, *definition, options)}
    entry |= {"target": "key"} if part == "Key" else {}
    return _validate(keys, prefix, {**entry, **({"when": when} if when else {})}, options)


def _options(
    keys: ConnectorKeys, alias: str, name: str, connect_class: ConnectClass, options: dict[str, str]
) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    model = KINDS[name].model_fields
    spellings = {field.alias or attribute for attribute, field in model.items()} - {"type", "when", "target"}
    for written, value in options.items():
        key, option = f"transforms.{alias}.{written}", connect_class.renames.get(written, written)
        if option in entry:
            keys.report(key, "refused", f"an option of {name} is written in two spellings", "remove the wrong one")
        elif option in spellings:
            entry[option] = value
        elif option in _NO_OPTION:
            keys.report(key, "changed", _NO_OPTION[option])
        else:
            keys.report(key, "not_supported", f"Frazil's {name} has no such option")
    if connect_class.note:
        keys.note(connect_class.note)
    return entry | {option: value for option, value in connect_class.defaults.items() if option not in entry}


def _validate(
    keys: ConnectorKeys, prefix: str, entry: dict[str, Any], options: dict[str, str]
) -> dict[str, Any] | None:
    """The entry of a transform; None if its model refuses it, which is reported."""
    try:
        _STEP.validate_python(entry)
    except ValidationError as error:
        complaints = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'][1:])} {problem['msg']}".strip()
            for problem in error.errors(include_input=False, include_url=False)
        )
        keys.report(f"{prefix}type", "refused", f"{entry['type']} does not take these options: {complaints}")
        return None
    keys.report(f"{prefix}type", "carried", f"transforms: {entry['type']}")
    for option in options:
        keys.report(prefix + option, "carried", f"transforms: {entry['type']}")
    return entry


def _reads_objects(step: dict[str, Any]) -> bool:
    """Whether a step turns texts into JSON objects, as the format `json` does."""
    return step["type"] == "JsonToMap" and "when" not in step and str(step.get("json.root", "false")).lower() != "true"


def _when(
    keys: ConnectorKeys, alias: str, options: dict[str, str], predicates: dict[str, dict[str, Any] | None]
) -> dict[str, Any] | None:
    prefix = f"transforms.{alias}."
    name, negate = options.pop("predicate", None), options.pop("negate", "false").lower() == "true"
    if name is None:
        return None
    if name not in predicates:
        keys.report(f"{prefix}predicate", "refused", "the key predicates does not name this one", "add it there")
        return None
    keys.report(f"{prefix}predicate", "carried", "transforms: when")
    keys.report(f"{prefix}negate", "carried", "transforms: when.negate")
    predicate = predicates[name]
    return {**predicate, **({"negate": True} if negate else {})} if predicate else None


def _predicate(keys: ConnectorKeys, alias: str) -> dict[str, Any] | None:
    prefix = f"predicates.{alias}."
    options = keys.below(prefix)
    name = options.pop("type", "").removeprefix(f"{KAFKA}predicates.")
    if name not in PREDICATES or options.keys() != options_of(PREDICATES[name]).keys():
        keys.report(f"{prefix}type", "refused", "not a predicate of Kafka Connect, or not with these options")
        keys.report("predicates", "refused", f"{prefix}type is missing or unusable")
        return None
    for option in ("type", *options):
        keys.report(prefix + option, "carried", "transforms: when")
    return {"predicate": name, **options}


def _unused(keys: ConnectorKeys, aliases: list[str], predicates: dict[str, dict[str, Any] | None]) -> None:
    used = {keys.get(f"transforms.{alias}.predicate") for alias in aliases}
    why = "no transform uses it, so it has no effect in Kafka Connect either"
    for name in predicates.keys() - used:
        for option in keys.below(f"predicates.{name}."):
            keys.report(f"predicates.{name}.{option}", "changed", why)
    for alias in aliases:
        if f"transforms.{alias}.predicate" not in keys:
            keys.report(f"transforms.{alias}.negate", "changed", "without a predicate it has no effect")


_FORMATS: Final = MappingProxyType(
    {converter: name for spec in FORMATS.values() for converter, name in zip(spec.converters, spec.names, strict=False)}
)
"""Converter -> format, for all converters but JSON's, which has two formats."""
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_OTHER_REGISTRIES: Final = ("com.amazonaws.services.schemaregistry.", "io.apicurio.registry.")
"""Packages of the converters of AWS Glue's and Apicurio's registries."""
_URL: Final = "schema.registry.url"
_USER: Final = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
_CLIENT_OPTIONS: Final = (
    *("bearer.auth.credentials.source", "bearer.auth.token", "bearer.auth.client.id", "bearer.auth.client.secret"),
    *("bearer.auth.scope", "bearer.auth.issuer.endpoint.url", "bearer.auth.logical.cluster"),
    "bearer.auth.identity.pool.id",
)
"""Options that confluent-kafka's client of the registry has under the same names."""

_OPTIONS_WITHOUT_EFFECT: Final = (
    *("auto.register.schemas", "use.latest.version", "latest.compatibility.strict", "key.subject.name.strategy"),
    *("value.subject.name.strategy", "enhanced.avro.schema.support", "connect.meta.data", "schemas.cache.config"),
    *("generalized.sum.type.support", "scrub.invalid.names", "max.schemas.per.subject", "normalize.schemas"),
    *("schemas.cache.size", "object.additional.properties", "use.optional.for.nonrequired", "optional.for.nullables"),
    *("wrapper.for.nullables", "wrapper.for.raw.primitives", "generate.struct.for.nulls", "generate.index.for.unions"),
    *("allow.optional.map.keys", "flatten.unions", "flatten.singleton.unions", "avro.use.logical.type.converters"),
    *("ignore.default.for.nullables", "discard.type.doc.default", "int.for.enums", "specific.avro.reader"),
)
"""Options of writers, of caches, and of the conversion to Kafka Connect's own types."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """The decoding of values.

    Attributes:
        value: The key `value` of the pipeline file.
        registry: The entry of the Schema Registry in the settings file; None if values need none.
        registry_url: The registry's address in the connector's configuration, which may be a secret.
    """

    value: dict[str, Any]
    registry: dict[str, Any] | None = None
    registry_url: str | None = field(default=None, repr=False)


def decoding(keys: ConnectorKeys, worker: ConnectorKeys, registry: str, secrets: Secrets) -> Decoding:
    """The decoding of values, by the connector's converter or else the worker's."""
    origin = keys if "value.converter" in keys else worker
    converter = origin.get("value.converter")
    if origin is keys:
        for option in worker.below("value.converter"):
            worker.report(f"value.converter{option}", "changed", "the connector's own converter counts")
    if converter is None:
        by_hand = "give the worker file (--worker), or add value.converter to the connector"
        keys.report("value.converter", "refused", "no key says how values are decoded", by_hand)
        return Decoding({})
    options = origin.below("value.converter.")
    if converter == _JSON:
        return Decoding(_json(origin, options))
    if converter in _FORMATS:
        name = _FORMATS[converter]
        if "registry" in FORMATS[name].shared_keys:
            return _with_registry(origin, name, options, registry, secrets)
        return Decoding(_without_registry(origin, name, options))
    by_hand = "write a format: docs/formats.md, own formats"
    if converter.startswith(_OTHER_REGISTRIES):
        by_hand = "docs/registries.md, Glue and Apicurio"
    origin.report("value.converter", "refused", "Frazil has no such converter", by_hand)
    return Decoding({})


def _json(keys: ConnectorKeys, options: dict[str, str], part: str = "value") -> dict[str, Any]:
    with_schema = options.get("schemas.enable", "true").lower() != "false"
    decoding = {"format": "json-envelope" if with_schema else "json"}
    keys.report(f"{part}.converter", "carried", f"{part}.format: {decoding['format']}")
    for name, value in options.items():
        key = f"{part}.converter.{name}"
        if name == "schemas.enable":
            keys.report(key, "carried", f"{part}.format: {decoding['format']}")
        elif name == "schemas.cache.size":
            keys.report(key, "changed", "Frazil has no such cache")
        elif name == "decimal.format" and value.upper() != "BASE64" and with_schema:
            keys.report(
                key, "not_supported", "decimals of an envelope are read as base64", "have the producer send base64"
            )
        elif name == "decimal.format":
            keys.report(key, "carried", "numbers keep every digit")
        elif name == "replace.null.with.default" and value.lower() == "false" and with_schema:
            keys.report(key, "changed", "nulls of required fields become the defaults of the schema")
        elif name == "replace.null.with.default":
            keys.report(key, "carried", "Frazil does the same")
    return decoding


def _without_registry(keys: ConnectorKeys, name: str, options: dict[str, str], part: str = "value") -> dict[str, Any]:
    keys.report(f"{part}.converter", "carried", f"{part}.format: {name}")
    encoding = options.get("encoding", "UTF-8")
    if encoding.upper().replace("-", "").replace("_", "") not in ("UTF8", "USASCII", "ASCII"):
        keys.report(f"{part}.converter.encoding", "refused", "text is read as UTF-8", "have the producer send UTF-8")
    keys.report(f"{part}.converter.encoding", "carried", "UTF-8")
    return {"format": name}


def _with_registry(
    keys: ConnectorKeys, name: str, options: dict[str, str], registry: str, secrets: Secrets
) -> Decoding:
    keys.report("value.converter", "carried", f"value.format: {name}")
    description = "address of the Schema Registry"
    keys.report(f"value.converter.{_URL}", "carried", "registries: url")
    url = (
        secrets.value("url", options[_URL], description) if _URL in options else secrets.hide("url", None, description)
    )
    entry: dict[str, Any] = {"url": url}
    for option in _USER:
        if option in options:
            entry["user_info"] = secrets.hide("user_info", options[option], "user:password of the Schema Registry")
            keys.report(f"value.converter.{option}", "carried", "registries: user_info, from the environment")
    _credentials_source(keys, options, entry, secrets)
    properties = {}
    for option, value in options.items():
        key, short_option = f"value.converter.{option}", option.removeprefix("schema.registry.")
        if option in _CLIENT_OPTIONS:
            properties[option] = secrets.value(option, value, f"property {option} of the Schema Registry's client")
            keys.report(key, "carried", f"registries: properties.{option}")
        elif option in _OPTIONS_WITHOUT_EFFECT:
            why = "for writers, or for Kafka Connect's own types: a value is read by the schema that it names"
            keys.report(key, "changed", why)
        elif short_option.startswith("ssl."):
            by_hand = "registries: ca_file, certificate_file, key_file and key_password, PEM files"
            keys.report(key, "not_supported", "keystores of Java are not read", by_hand)
        elif short_option.startswith("proxy."):
            keys.report(key, "changed", "set registries: properties.proxy, if there is a proxy")
    entry |= {"properties": properties} if properties else {}
    return Decoding({"format": name, "registry": registry}, entry, options.get(_URL))


def _credentials_source(keys: ConnectorKeys, options: dict[str, str], entry: dict[str, Any], secrets: Secrets) -> None:
    name = "basic.auth.credentials.source"
    if name not in options:
        return
    key = f"value.converter.{name}"
    if options[name].upper() in ("USER_INFO", "URL"):
        keys.report(key, "carried", "registries: user_info, or user and password in the url")
        return
    entry.setdefault("user_info", secrets.hide("user_info", None, "user:password of the Schema Registry"))
    keys.report(key, "changed", "user and password come from the environment")


def key_decoding(keys: ConnectorKeys, worker: ConnectorKeys, value: Decoding, *, needed: bool) -> dict[str, Any] | None:
    """The key `key` of the pipeline file; None if no transform works on keys, or they can't be decoded."""
    origin = keys if "key.converter" in keys else worker
    converter, options = origin.get("key.converter") or "", origin.below("key.converter.")
    value_options = (keys if "value.converter" in keys else worker).below("value.converter.")
    # A pipeline reads keys and values from one registry, with one login.
    shares_registry = all(value_options.get(name) == text for name, text in options.items())
    key_format = _key_format(origin, converter, options, value) if needed else None
    if key_format is not None and "registry" in key_format and not shares_registry:
        key_format = None
    message = "key" if key_format else "no effect"
    if not needed:
        message = "keys are not decoded: no transform needs them, and dead letters keep their bytes"
    for key_set in (keys, worker):
        outcome: Outcome = "carried" if key_format and key_set is origin else "changed"
        for name in key_set.below("key.converter"):
            key_set.report(f"key.converter{name}", outcome, message)
    return key_format


def _key_format(keys: ConnectorKeys, converter: str, options: dict[str, str], value: Decoding) -> dict[str, Any] | None:
    if converter == _JSON:
        key_format = _json(keys, options, "key")
        # JSON without schemas has no types, which the decoding of keys needs.
        return None if key_format["format"] == "json" else key_format
    if converter not in _FORMATS:
        return None
    name, registry = _FORMATS[converter], value.value.get("registry")
    if "registry" not in FORMATS[name].shared_keys:
        return _without_registry(keys, name, options, "key")
    is_same = registry is not None and options.get(_URL) == value.registry_url
    return {"format": name, "registry": registry} if is_same else None
