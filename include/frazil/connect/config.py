"""Configurations of connectors and workers: read from JSON or Java's properties; the properties of Kafka's Java client are
translated to those of librdkafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

from frazil.connect.findings import ConnectorKeys, Finding, Secrets
from frazil.kafka_properties import TOKEN_PROVIDER
from frazil.pipeline.files.files import UnreadableProperties, read


@dataclass(frozen=True, slots=True)
class Connector:
    """One connector's configuration, unchanged.

    Attributes:
        file: The file that it was read from.
        config: Keys and values as texts. Values may be secrets.
    """

    file: str
    config: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """Its name, or the name of its file."""
        return self.config.get("name", "").strip() or self.file.rpartition("/")[2].partition(".")[0]


def read_connectors(text: str, file: str) -> list[Connector]:
    """The connectors of a file: one object, `{"name": …, "config": {…}}` or flat, a list of them, or properties.

    Raises:
        UnreadableProperties: The text has none of these forms.
    """
    has_brackets = text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
    if file.endswith(".json") or (has_brackets and not file.endswith(".properties")):
        document = _json(text)
        return [Connector(file, _keys(body)) for body in (document if isinstance(document, list) else [document])]
    return [Connector(file, read(text))]


def _json(text: str) -> Any:
    try:
        return json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        where = f": line {error.lineno}, {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise UnreadableProperties(f"not JSON{where}") from error


def _keys(body: Any) -> dict[str, str]:
    """The keys of a connector, with texts as values. Kafka Connect treats null as absent."""
    if not isinstance(body, dict):
        raise UnreadableProperties("expected an object with the keys of a connector")
    if isinstance(body.get("config"), dict):
        body = ({"name": body["name"]} if "name" in body else {}) | body["config"]
    return {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in body.items() if value is not None
    }


Report = Callable[..., None]
"""Adds a finding: key, outcome, message, and what to do by hand."""

_SAME: Final = MappingProxyType(
    {
        "security.protocol": "security.protocol",
        "sasl.mechanism": "sasl.mechanism",
        "sasl.kerberos.service.name": "sasl.kerberos.service.name",
        "sasl.kerberos.min.time.before.relogin": "sasl.kerberos.min.time.before.relogin",
        "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
        "ssl.cipher.suites": "ssl.cipher.suites",
        "ssl.key.password": "ssl.key.password",
        "client.rack": "client.rack",
        "client.dns.lookup": "client.dns.lookup",
        "fetch.min.bytes": "fetch.min.bytes",
        "fetch.max.bytes": "fetch.max.bytes",
        "max.partition.fetch.bytes": "max.partition.fetch.bytes",
        "fetch.max.wait.ms": "fetch.wait.max.ms",
        "receive.buffer.bytes": "socket.receive.buffer.bytes",
        "send.buffer.bytes": "socket.send.buffer.bytes",
        "connections.max.idle.ms": "connections.max.idle.ms",
        "metadata.max.age.ms": "metadata.max.age.ms",
    }
)
"""Properties of the Java client, and librdkafka's names for the same."""

_HANDLERS: Final = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")
"""Properties that name classes which log the Java client in."""

_MSK: Final = "software.amazon.msk."
"""The package of the classes that log in to Amazon MSK."""

_TRANSLATED: Final = (
    *_HANDLERS,
    *("sasl.jaas.config", "ssl.endpoint.identification.algorithm", "ssl.truststore.location", "ssl.truststore.type"),
    *("ssl.truststore.password", "ssl.truststore.certificates", "ssl.keystore.location", "ssl.keystore.type"),
    *("ssl.keystore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain"),
)
"""Properties that the functions below translate."""

_NO_EFFECT: Final = (
    *("group.id", "group.instance.id", "enable.auto.commit", "auto.commit.interval.ms", "group.protocol", "client.id"),
    *("session.timeout.ms", "heartbeat.interval.ms", "max.poll.records", "max.poll.interval.ms", "check.crcs"),
    *("request.timeout.ms", "default.api.timeout.ms", "retry.backoff.ms", "reconnect.backoff.ms", "ssl.provider"),
    *("reconnect.backoff.max.ms", "key.deserializer", "value.deserializer", "interceptor.classes", "metric.reporters"),
    *("allow.auto.create.topics", "exclude.internal.topics", "metrics.num.samples", "metadata.recovery.strategy"),
    *("metrics.recording.level", "metrics.sample.window.ms", "socket.connection.setup.timeout.ms", "ssl.protocol"),
    *("sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
    *("ssl.enabled.protocols", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "security.providers"),
    *("ssl.secure.random.implementation", "ssl.engine.factory.class", "enable.metrics.push"),
    *("auto.include.jmx.reporter", "partition.assignment.strategy"),
)
"""Properties of the Java client that Frazil does not need."""

_JAAS_OPTION: Final = re.compile(r"(?P<name>[A-Za-z.]+)\s*=\s*(?:\"(?P<quoted>(?:\\.|[^\"\\])*)\"|(?P<bare>[^\s;\"]+))")


def is_client_property(name: str) -> bool:
    """Whether Kafka's Java client has a property of this name. A worker file may have it for the worker's clients."""
    return name in _SAME or name in _TRANSLATED or name in _NO_EFFECT


def librdkafka_properties(java_properties: Mapping[str, str], secrets: Secrets, report: Report) -> dict[str, str]:
    """Translate properties of the Java client for the settings file. Secrets become references.

    `report` receives the finding about each property. The result may have `TOKEN_PROVIDER`, which is a key of the cluster in the
    settings, not a property of librdkafka.
    """
    properties: dict[str, str] = {}
    for name, value in java_properties.items():
        if name in _SAME:
            properties[_SAME[name]] = secrets.value(name, value, f"property {name} of the Kafka client")
            report(name, "carried", f"clusters: properties.{_SAME[name]}")
        elif name in _NO_EFFECT:
            report(name, "changed", "Frazil's reader sets this itself, or does not need it")
        elif name not in _TRANSLATED:
            by_hand = "check librdkafka's CONFIGURATION.md"
            report(name, "not_supported", "librdkafka may have no such property", by_hand)
    _endpoint(java_properties, properties, report)
    _login(java_properties, properties, secrets, report)
    _trust(java_properties, properties, secrets, report)
    _identity(java_properties, properties, secrets, report)
    return properties


def _endpoint(java_properties: Mapping[str, str], properties: dict[str, str], report: Report) -> None:
    name = "ssl.endpoint.identification.algorithm"
    if name in java_properties:
        properties[name] = java_properties[name].strip().lower() or "none"
        report(name, "carried", f"clusters: properties.{name}")


def _login(java_properties: Mapping[str, str], properties: dict[str, str], secrets: Secrets, report: Report) -> None:
    mechanism = java_properties.get("sasl.mechanism", "").upper()
    options = {
        option["name"]: option["quoted"] if option["bare"] is None else option["bare"]
        for option in _JAAS_OPTION.finditer(java_properties.get("sasl.jaas.config", ""))
    }
    handlers = [name for name in _HANDLERS if name in java_properties]
    if mechanism == "AWS_MSK_IAM" or any(_MSK in java_properties[name] for name in handlers):
        _msk_login(options, properties, secrets, report)
        return
    for name in handlers:
        by_hand = "write a token provider instead (docs/logins.md), and name it as token_provider of the cluster"
        report(name, "not_supported", "a class of the Java client, which librdkafka can't use", by_hand)
    if mechanism not in ("", "PLAIN", "GSSAPI", "OAUTHBEARER", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        properties.pop("sasl.mechanism", None)
        by_hand = "use a mechanism that librdkafka has: PLAIN, SCRAM, OAUTHBEARER or GSSAPI"
        report("sasl.mechanism", "not_supported", "librdkafka does not have this mechanism", by_hand)
    if mechanism in ("GSSAPI", "") and {"principal", "keyTab"} <= options.keys():
        _kerberos_login(options, properties, secrets, report)
    elif "sasl.jaas.config" in java_properties:
        _password_login(java_properties, options, properties, secrets, report)


def _msk_login(options: Mapping[str, str], properties: dict[str, str], secrets: Secrets, report: Report) -> None:
    """The login of Amazon MSK's IAM access control: classes in Java, a token provider here."""
    properties |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", TOKEN_PROVIDER: "msk-iam"}
    if "awsProfileName" in options:
        profile = secrets.value("aws_profile", options["awsProfileName"], "profile of AWS's configuration")
        properties["sasl.oauthbearer.config"] = f"profile={profile}"
    message = "clusters: token_provider: msk-iam and properties.sasl.mechanism: OAUTHBEARER; pip install 'frazil[msk]'"
    for name in ("sasl.mechanism", *_HANDLERS):
        report(name, "changed", message)
    if "awsRoleArn" in options:
        by_hand = (
            "let a profile of AWS's configuration assume the role, and set profile=PROFILE in sasl.oauthbearer.config"
        )
        report("sasl.jaas.config", "not_supported", "the token provider assumes no role by itself", by_hand)
    message = "the token provider takes the credentials that AWS's clients find where tasks run"
    report("sasl.jaas.config", "changed", message)


_SHELL_UNSAFE: Final = re.compile(r"[^\w@/.:+=,\\-]", re.ASCII)
"""Characters that must not be in the command line of `kinit`, which librdkafka gives to a shell."""


def _kerberos_login(options: Mapping[str, str], properties: dict[str, str], secrets: Secrets, report: Report) -> None:
    names = {"principal": "principal", "keyTab": "keytab", "serviceName": "service.name"}
    for option in names.keys() & options.keys():
        key = f"sasl.kerberos.{names[option]}"
        value = secrets.value(key, options[option], f"{option} of sasl.jaas.config")
        if value == options[option] and _SHELL_UNSAFE.search(value):
            by_hand = f"set {key} of the cluster's properties without characters that mean something to a shell"
            message = f"{option} has such characters, and librdkafka calls kinit through a shell"
            report("sasl.jaas.config", "not_supported", message, by_hand)
            continue
        properties[key] = value
    by_hand = "install a confluent-kafka with Kerberos, as docs/logins.md says: its wheel has none"
    report("sasl.jaas.config", "carried", "clusters: properties.sasl.kerberos.principal and .keytab", by_hand)


def _password_login(
    java_properties: Mapping[str, str],
    options: Mapping[str, str],
    properties: dict[str, str],
    secrets: Secrets,
    report: Report,
) -> None:
    text, mechanism = java_properties["sasl.jaas.config"], java_properties.get("sasl.mechanism", "").upper()
    pairs = {"username": "sasl.username", "password": "sasl.password"}
    if mechanism == "OAUTHBEARER":
        pairs = {"clientId": "sasl.oauthbearer.client.id", "clientSecret": "sasl.oauthbearer.client.secret"}
        properties["sasl.oauthbearer.method"] = "oidc"
    if "${" in text.partition(" ")[0] or not pairs.keys() <= options.keys():
        if mechanism in ("GSSAPI", ""):
            by_hand = (
                "set sasl.kerberos.principal and sasl.kerberos.keytab, or what the mechanism needs, under properties"
            )
            report("sasl.jaas.config", "not_supported", "it names no user and password", by_hand)
            return
        options = {}
    for option, name in pairs.items():
        properties[name] = secrets.hide(name, options.get(option), f"{option} of sasl.jaas.config")
    message = f"clusters: properties.{' and '.join(pairs.values())}, from the environment"
    report("sasl.jaas.config", "carried", message)


def _trust(java_properties: Mapping[str, str], properties: dict[str, str], secrets: Secrets, report: Report) -> None:
    kind = java_properties.get("ssl.truststore.type", "JKS").upper()
    if "ssl.truststore.certificates" in java_properties:
        properties["ssl.ca.pem"] = secrets.hide(
            "ssl.ca.pem", java_properties["ssl.truststore.certificates"], "certificates to trust, PEM"
        )
        report("ssl.truststore.certificates", "carried", "clusters: properties.ssl.ca.pem, from the environment")
    if "ssl.truststore.location" in java_properties:
        if kind == "PEM":
            properties["ssl.ca.location"] = secrets.value(
                "ssl.ca.location", java_properties["ssl.truststore.location"], "file, PEM"
            )
            report("ssl.truststore.location", "carried", "clusters: properties.ssl.ca.location")
        else:
            properties["ssl.ca.location"] = secrets.hide(
                "ssl_ca_location", None, "file of the certificates to trust, PEM"
            )
            by_hand = "keytool -exportcert -rfc -keystore … > ca.pem, and name that file in the variable"
            report("ssl.truststore.location", "not_supported", "librdkafka reads PEM, no Java keystore", by_hand)
    for name in ("ssl.truststore.type", "ssl.truststore.password"):
        if name in java_properties:
            report(name, "changed", "certificates to trust are a PEM file here, without type and password")


def _identity(java_properties: Mapping[str, str], properties: dict[str, str], secrets: Secrets, report: Report) -> None:
    kind = java_properties.get("ssl.keystore.type", "JKS").upper()
    location = java_properties.get("ssl.keystore.location")
    inline = {"ssl.keystore.key": "ssl.key.pem", "ssl.keystore.certificate.chain": "ssl.certificate.pem"}
    for name, librdkafka_name in inline.items():
        if name in java_properties:
            properties[librdkafka_name] = secrets.hide(librdkafka_name, java_properties[name], f"{name}, PEM")
            report(name, "carried", f"clusters: properties.{librdkafka_name}, from the environment")
    if location is not None and kind == "PEM":
        written = secrets.value("ssl.certificate.location", location, "file of key and certificate, PEM")
        properties |= {"ssl.certificate.location": written, "ssl.key.location": written}
        report("ssl.keystore.location", "carried", "clusters: properties.ssl.certificate.location, ssl.key.location")
    elif location is not None:
        is_pkcs12 = kind == "PKCS12" or location.endswith((".p12", ".pfx"))
        properties["ssl.keystore.location"] = (
            secrets.value("ssl.keystore.location", location, "file of the keystore")
            if is_pkcs12
            else secrets.hide("ssl_keystore_location", None, "keystore, PKCS#12")
        )
        outcome = "carried" if is_pkcs12 else "not_supported"
        by_hand = (
            None if is_pkcs12 else "keytool -importkeystore -deststoretype PKCS12 …, and name that file in the variable"
        )
        report(
            "ssl.keystore.location", outcome, "clusters: properties.ssl.keystore.location, which is PKCS#12", by_hand
        )
    if "ssl.keystore.type" in java_properties:
        report("ssl.keystore.type", "changed", "librdkafka reads PKCS#12, or PEM")
    if "ssl.keystore.password" in java_properties:
        properties["ssl.keystore.password"] = secrets.hide(
            "ssl.keystore.password", java_properties["ssl.keystore.password"], "its password"
        )
        report("ssl.keystore.password", "carried", "clusters: properties.ssl.keystore.password, from the environment")


_WORKER_KEYS: Final = (
    *("group.id", "plugin.path", "plugin.discovery", "listeners", "client.id", "exactly.once.source.support"),
    *("task.shutdown.graceful.timeout.ms", "connector.client.config.override.policy", "header.converter"),
    *("scheduled.rebalance.max.delay.ms", "rebalance.timeout.ms", "worker.sync.timeout.ms", "worker.unsync.backoff.ms"),
    *("connect.protocol", "topic.creation.enable", "topic.tracking.enable", "topic.tracking.allow.reset"),
    *("inter.worker.key.generation.algorithm", "access.control.allow.origin", "access.control.allow.methods"),
    *("response.http.headers.config", "key.converter", "value.converter", "bootstrap.servers"),
)
_WORKER_PREFIXES: Final = (
    *("offset.", "config.", "status.", "rest.", "admin.", "producer.", "metrics.", "inter.worker.", "internal."),
    *("listeners.https.", "topic.creation.", "confluent.", "header.converter.", "key.converter.", "value.converter."),
)


def close_worker(worker: ConnectorKeys) -> tuple[Finding, ...]:
    """Classify the remaining keys of a worker file, and return all findings."""
    for name in list(worker.unreported()):
        property_name = name.removeprefix("consumer.")
        if name in _WORKER_KEYS or name.startswith(_WORKER_PREFIXES) or is_client_property(property_name):
            worker.report(name, "changed", "configures Kafka Connect's workers; Frazil has none")
            continue
        similar = get_close_matches(name, _WORKER_KEYS, 1, 0.75)
        hint = f"did you mean {similar[0]}?" if similar else None
        worker.report(name, "unknown", "not a key of a worker of Kafka Connect", hint)
    return worker.close()
