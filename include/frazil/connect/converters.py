"""Converters: the value format, and the Schema Registry that it uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from frazil.connect.findings import ConnectorKeys, Secrets
from frazil.records.formats.catalogue import FORMATS

_FORMATS: Final = MappingProxyType(
    {converter: name for spec in FORMATS.values() for converter, name in zip(spec.converters, spec.names, strict=False)}
)
"""Formats by the converter that they stand for; JSON's stands for two."""
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
_FRAMED: Final = ("com.amazonaws.services.schemaregistry.", "io.apicurio.registry.")
"""Converters of registries with a frame and settings of their own."""
_URL: Final = "schema.registry.url"
_USER: Final = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
_CLIENT: Final = (
    *("bearer.auth.credentials.source", "bearer.auth.token", "bearer.auth.client.id", "bearer.auth.client.secret"),
    *(
        "bearer.auth.scope",
        "bearer.auth.issuer.endpoint.url",
        "bearer.auth.logical.cluster",
        "bearer.auth.identity.pool.id",
    ),
)
"""Properties that confluent-kafka's client of the registry has under the same names."""

_WRITERS: Final = (
    *("auto.register.schemas", "use.latest.version", "latest.compatibility.strict", "key.subject.name.strategy"),
    *("value.subject.name.strategy", "enhanced.avro.schema.support", "connect.meta.data", "schemas.cache.config"),
    *("generalized.sum.type.support", "scrub.invalid.names", "max.schemas.per.subject", "normalize.schemas"),
    *("schemas.cache.size", "object.additional.properties", "use.optional.for.nonrequired", "optional.for.nullables"),
    *("wrapper.for.nullables", "wrapper.for.raw.primitives", "generate.struct.for.nulls", "generate.index.for.unions"),
    *("allow.optional.map.keys", "flatten.unions", "flatten.singleton.unions", "avro.use.logical.type.converters"),
    *("ignore.default.for.nullables", "discard.type.doc.default", "int.for.enums", "specific.avro.reader"),
)
"""Options of writers, of caches, and of how Connect's own types are made."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """The keys `value` of the pipeline file, and the registry of the settings file, if one is asked.

    `registry_url` is its address as the connector has it.
    """

    value: dict[str, Any]
    registry: dict[str, Any] | None = None
    registry_url: str | None = field(default=None, repr=False)


def decoding(keys: ConnectorKeys, worker: ConnectorKeys, registry: str, secrets: Secrets) -> Decoding:
    """How values are decoded: by the connector's converter, or the worker's."""
    origin = keys if "value.converter" in keys else worker
    converter = origin.get("value.converter")
    if origin is keys:
        for option in worker.below("value.converter"):
            worker.say(f"value.converter{option}", "changed", "the connector has a converter of its own")
    if converter is None:
        by_hand = "give the worker file (--worker), or add value.converter to the connector"
        keys.say("value.converter", "refused", "no key says how values are decoded", by_hand)
        return Decoding({})
    options = origin.below("value.converter.")
    if converter == _JSON:
        return Decoding(_json(origin, options))
    if converter in _FORMATS:
        name = _FORMATS[converter]
        if "registry" in FORMATS[name].shared_keys:
            return _registered(origin, name, options, registry, secrets)
        return Decoding(_bare(origin, name, options))
    framed = converter.startswith(_FRAMED)
    by_hand = "docs/registries.md, Glue and Apicurio" if framed else "docs/formats.md, own formats: make a format of it"
    origin.say("value.converter", "refused", "Frazil has no such converter", by_hand)
    return Decoding({})


def _json(keys: ConnectorKeys, options: dict[str, str], half: str = "value") -> dict[str, Any]:
    with_schema = options.get("schemas.enable", "true").lower() != "false"
    decoding = {"format": "json-envelope" if with_schema else "json"}
    keys.say(f"{half}.converter", "carried", f"{half}.format: {decoding['format']}")
    for name, value in options.items():
        key = f"{half}.converter.{name}"
        if name == "schemas.enable":
            keys.say(key, "carried", f"{half}.format: {decoding['format']}")
        elif name == "schemas.cache.size":
            keys.say(key, "changed", "no cache to size")
        elif name == "decimal.format" and value.upper() != "BASE64" and with_schema:
            keys.say(
                key, "not_supported", "decimals of an envelope are read as base64", "have the producer send base64"
            )
        elif name == "decimal.format":
            keys.say(key, "carried", "numbers keep every digit")
        elif name == "replace.null.with.default" and value.lower() == "false" and with_schema:
            keys.say(key, "changed", "defaults of the schema stand in for nulls of required fields")
        elif name == "replace.null.with.default":
            keys.say(key, "carried", "as here")
    return decoding


def _bare(keys: ConnectorKeys, name: str, options: dict[str, str], half: str = "value") -> dict[str, Any]:
    keys.say(f"{half}.converter", "carried", f"{half}.format: {name}")
    encoding = options.get("encoding", "UTF-8")
    if encoding.upper().replace("-", "").replace("_", "") not in ("UTF8", "USASCII", "ASCII"):
        keys.say(f"{half}.converter.encoding", "refused", "text is read as UTF-8", "have the producer send UTF-8")
    elif "encoding" in options:
        keys.say(f"{half}.converter.encoding", "carried", "UTF-8")
    return {"format": name}


def _registered(keys: ConnectorKeys, name: str, options: dict[str, str], registry: str, secrets: Secrets) -> Decoding:
    keys.say("value.converter", "carried", f"value.format: {name}")
    what = "address of the Schema Registry"
    if _URL in options:
        keys.say(f"value.converter.{_URL}", "carried", "registries: url")
    url = secrets.value("url", options[_URL], what) if _URL in options else secrets.hide("url", None, what)
    entry: dict[str, Any] = {"url": url}
    for option in _USER:
        if option in options:
            entry["user_info"] = secrets.hide("user_info", options[option], "user:password of the Schema Registry")
            keys.say(f"value.converter.{option}", "carried", "registries: user_info, from the environment")
    _source_of_credentials(keys, options, entry, secrets)
    properties = {}
    for option, value in options.items():
        key, plain = f"value.converter.{option}", option.removeprefix("schema.registry.")
        if option in _CLIENT:
            properties[option] = secrets.value(option, value, f"property {option} of the Schema Registry's client")
            keys.say(key, "carried", f"registries: properties.{option}")
        elif option in _WRITERS:
            keys.say(
                key, "changed", "for writers, or for Kafka Connect's own types: a value is read by the schema it names"
            )
        elif plain.startswith("ssl."):
            by_hand = "registries: ca_file, certificate_file, key_file and key_password, PEM files"
            keys.say(key, "not_supported", "keystores of Java are not read", by_hand)
        elif plain.startswith("proxy.") and option != _URL:
            keys.say(key, "changed", "set registries: properties.proxy, if there is a proxy")
    return Decoding(
        {"format": name, "registry": registry}, {**entry, "properties": properties} if properties else entry
    )


def _source_of_credentials(
    keys: ConnectorKeys, options: dict[str, str], entry: dict[str, Any], secrets: Secrets
) -> None:
    name = "basic.auth.credentials.source"
    if name not in options:
        return
    kind = options[name].upper()
    key = f"value.converter.{name}"
    if kind in ("USER_INFO", "URL"):
        keys.say(key, "carried", "registries: user_info, or user and password in the url")
        return
    entry.setdefault("user_info", secrets.hide("user_info", None, "user:password of the Schema Registry"))
    keys.say(key, "changed", "user and password come from the environment")


def key_decoding(keys: ConnectorKeys, worker: ConnectorKeys, value: Decoding, *, needed: bool) -> dict[str, Any] | None:
    """The key `key` of the pipeline file, if a transform works on keys and they can be decoded."""
    origin = keys if "key.converter" in keys else worker
    converter, options = origin.get("key.converter") or "", origin.below("key.converter.")
    key_format = _key_format(origin, converter, options, value) if needed else None
    why = (
        "keys are not decoded: no transform needs them, and dead letters keep their bytes"
        if not needed
        else "no effect"
    )
    for key_set in (keys, worker):
        for name in key_set.below("key.converter"):
            key_set.say(
                f"key.converter{name}",
                "carried" if key_format and key_set is origin else "changed",
                "key" if key_format else why,
            )
    return key_format


def _key_format(keys: ConnectorKeys, converter: str, options: dict[str, str], value: Decoding) -> dict[str, Any] | None:
    if converter == _JSON:
        key_format = _json(keys, options, "key")
        # Without schemas nothing says what a key holds, as its decoding needs to know.
        return None if key_format["format"] == "json" else key_format
    if converter not in _FORMATS:
        return None
    name, registry = _FORMATS[converter], value.value.get("registry")
    if "registry" not in FORMATS[name].shared_keys:
        return _bare(keys, name, options, "key")
    is_same = registry is not None and options.get(_URL) == value.registry_url
    return {"format": name, "registry": registry} if is_same else None
