"""The keys of a connector: their current names, the one class that each given key is in, and values that must not be
written down.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal

# Sources: docs/kafka-connect.md of Apache Iceberg; README and IcebergSinkConfig of the Tabular (Databricks) repository up to
# 0.6.19, whose early releases wrote camel case; Kafka Connect's configuration reference.

APACHE: Final = "org.apache.iceberg.connect.IcebergSinkConnector"
TABULAR: Final = "io.tabular.iceberg.connect.IcebergSinkConnector"

LEGACY: Final = MappingProxyType(
    {
        "iceberg.tables.dynamic.enabled": "iceberg.tables.dynamic-enabled",
        "iceberg.tables.routeField": "iceberg.tables.route-field",
        "iceberg.tables.defaultCommitBranch": "iceberg.tables.default-commit-branch",
        "iceberg.tables.cdcField": "iceberg.tables.cdc-field",
        "iceberg.tables.upsertModeEnabled": "iceberg.tables.upsert-mode-enabled",
        "iceberg.tables.autoCreateEnabled": "iceberg.tables.auto-create-enabled",
        "iceberg.tables.evolveSchemaEnabled": "iceberg.tables.evolve-schema-enabled",
        "iceberg.control.group.id": "iceberg.control.group-id",
        "iceberg.control.commitIntervalMs": "iceberg.control.commit.interval-ms",
        "iceberg.control.commitTimeoutMs": "iceberg.control.commit.timeout-ms",
        "iceberg.control.commitThreads": "iceberg.control.commit.threads",
    }
)
"""Old spellings of Tabular's early releases, and what they are called now."""

_LEGACY_OF_TABLES: Final = MappingProxyType(
    {
        "routeRegex": "route-regex",
        "routeValues": "route-regex",
        "idColumns": "id-columns",
        "commitBranch": "commit-branch",
    }
)

TABLE_OPTIONS: Final = ("route-regex", "partition-by", "id-columns", "commit-branch")
"""What `iceberg.table.<table>.` ends in."""

_PER_TABLE: Final = re.compile(
    rf"iceberg\.table\.(?P<table>.+)\.(?P<option>{'|'.join([*TABLE_OPTIONS, *_LEGACY_OF_TABLES])})"
)

CANONICAL: Final = (
    "iceberg.tables",
    "iceberg.tables.dynamic-enabled",
    "iceberg.tables.route-field",
    "iceberg.tables.default-commit-branch",
    "iceberg.tables.default-id-columns",
    "iceberg.tables.default-partition-by",
    "iceberg.tables.cdc-field",
    "iceberg.tables.upsert-mode-enabled",
    "iceberg.tables.auto-create-enabled",
    "iceberg.tables.evolve-schema-enabled",
    "iceberg.tables.schema-force-optional",
    "iceberg.tables.schema-case-insensitive",
    "iceberg.tables.replace-null-with-default",
    "iceberg.control.topic",
    "iceberg.control.group-id",
    "iceberg.control.group-id-prefix",
    "iceberg.connect.group-id",
    "iceberg.control.commit.interval-ms",
    "iceberg.control.commit.timeout-ms",
    "iceberg.control.commit.threads",
    "iceberg.control.commit.max-consecutive-failures",
    "iceberg.coordinator.transactional.prefix",
    "iceberg.coordinator.transactional.suffix",
    "iceberg.coordinator-executor-keep-alive-timeout-ms",
    "iceberg.catalog",
    "iceberg.catalog.type",
    "iceberg.catalog.catalog-impl",
    "iceberg.catalog.uri",
    "iceberg.catalog.warehouse",
    "iceberg.hadoop-conf-dir",
    "name",
    "connector.class",
    "tasks.max",
    "tasks.max.enforce",
    "topics",
    "topics.regex",
    "key.converter",
    "value.converter",
    "header.converter",
    "transforms",
    "predicates",
    "config.action.reload",
    "errors.tolerance",
    "errors.retry.timeout",
    "errors.retry.delay.max.ms",
    "errors.log.enable",
    "errors.log.include.messages",
    "errors.deadletterqueue.topic.name",
    "errors.deadletterqueue.topic.replication.factor",
    "errors.deadletterqueue.context.headers.enable",
    "consumer.override.auto.offset.reset",
    "consumer.override.isolation.level",
)
"""Keys with a name of their own."""

_FAMILIES: Final = (
    "iceberg.tables.auto-create-props.",
    "iceberg.tables.write-props.",
    "iceberg.table.write-props.",
    "iceberg.catalog.",
    "iceberg.hadoop.",
    "iceberg.kafka.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "transforms.",
    "predicates.",
    "consumer.override.",
    "producer.override.",
    "admin.override.",
)
"""Prefixes of keys that something else reads."""


def current(key: str) -> str:
    """The present name of a key: its own, unless it is an old spelling."""
    if key in LEGACY:
        return LEGACY[key]
    table = per_table(key)
    return f"iceberg.table.{table[0]}.{table[1]}" if table else key


def per_table(key: str) -> tuple[str, str] | None:
    """Table and option of a key that is about one table, by the option's present name."""
    match = _PER_TABLE.fullmatch(key)
    return (match["table"], _LEGACY_OF_TABLES.get(match["option"], match["option"])) if match else None


def is_known(name: str) -> bool:
    """Whether a present name is one of the sink or of the framework."""
    return name in CANONICAL or name.startswith(_FAMILIES)


def suggestions(tables: Collection[str]) -> list[str]:
    """Names per table, for slips in them."""
    return [f"iceberg.table.{table}.{option}" for table in tables for option in TABLE_OPTIONS]


Outcome = Literal["carried", "changed", "not_supported", "unknown", "refused"]
"""Carried over; changed in meaning; not supported (to be done by hand); unknown; refused (nothing is written)."""

OUTCOMES: tuple[Outcome, ...] = ("refused", "not_supported", "unknown", "changed", "carried")
"""The graver one first: what is said of one key twice counts as the graver."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding about one key.

    Attributes:
        key: The key as it was written, or one that should have been.
        outcome: Its class.
        message: The key's new place, or why it has none. Never a value that may be secret.
        by_hand: What to do, if there is something.
    """

    key: str
    outcome: Outcome
    message: str
    by_hand: str | None = None


class ConnectorKeys:
    """The keys of one connector, and the findings about each.

    Legacy names count as the present ones. A key whose value is empty counts as not given, as an empty option of Kafka
    Connect has no effect.
    """

    def __init__(self, config: Mapping[str, str], origin: str = "") -> None:
        self.origin = origin
        self._written: dict[str, list[str]] = {}
        self._values: dict[str, str] = {}
        self._findings: dict[str, Finding] = {}
        self.notes: list[str] = []
        for key, value in config.items():
            self._take(key, value.strip())

    def _take(self, key: str, value: str) -> None:
        name = current(key)
        self._written.setdefault(name, []).append(key)
        if name in self._values and self._values[name] != value:
            spellings = " and ".join(self._written[name])
            self.say(name, "refused", f"{spellings} are the same option with two values", "remove the wrong one")
        if value or name not in self._values:
            self._values[name] = value
        if not value:
            self.say(name, "changed", "empty, so it counts as missing")

    def __contains__(self, name: str) -> bool:
        return bool(self._values.get(name))

    def get(self, name: str) -> str | None:
        """The value of a key by its present name; None if it is missing or empty."""
        return self._values.get(name) or None

    @property
    def deprecated_names(self) -> list[str]:
        """Keys that the configuration gives under deprecated names."""
        return sorted(key for name, written in self._written.items() for key in written if key != name)

    def is_true(self, name: str) -> bool:
        """Whether a switch is on. Kafka Connect takes nothing but true and false, and refuses the connector otherwise."""
        value = (self.get(name) or "").lower()
        if value not in ("", "true", "false"):
            self.say(name, "refused", "neither true nor false: Kafka Connect refuses it", "write true or false")
        return value == "true"

    def below(self, prefix: str) -> dict[str, str]:
        """The keys with a prefix, without it; empty values left out."""
        return {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix) and value}

    def say(self, name: str, outcome: Outcome, message: str, by_hand: str | None = None) -> None:
        """Classify a key. If it is classified twice, the more serious class counts; if both are equal, the first one."""
        missing = [name] if outcome == "refused" else []
        for written in self._written.get(name, missing):
            finding = Finding(self.origin + written, outcome, message + _old_name(written, name), by_hand)
            earlier = self._findings.get(written)
            if earlier is None or OUTCOMES.index(outcome) < OUTCOMES.index(earlier.outcome):
                self._findings[written] = finding

    def note(self, text: str) -> None:
        """Add a remark that concerns no single key."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def is_refused(self) -> bool:
        """Whether a finding prevents the import of the connector."""
        return any(finding.outcome == "refused" for finding in self._findings.values())

    def unsaid(self) -> Iterator[str]:
        """Present keys that are not classified yet."""
        for name, written in self._written.items():
            if any(key not in self._findings for key in written):
                yield name

    def close(self, tables: Collection[str] = ()) -> tuple[Finding, ...]:
        """Classify the remaining keys as unknown, each with the nearest known name, and return all findings."""
        for name in list(self.unsaid()):
            if is_known(name):
                self.say(name, "changed", "has no effect in this configuration, as in Kafka Connect")
                continue
            similar = get_close_matches(name, [*suggestions(tables), *CANONICAL], 1, 0.75)
            hint = f"did you mean {similar[0]}?" if similar else None
            self.say(name, "unknown", "not a key of the sink or of Kafka Connect, so nothing reads it", hint)
        return tuple(
            sorted(self._findings.values(), key=lambda finding: (OUTCOMES.index(finding.outcome), finding.key))
        )


def _old_name(written: str, name: str) -> str:
    return "" if written == name else f" (old name of {name})"


_MARKS = (
    *("password", "passwd", "secret", "token", "credential", "jaas", "user.info", "userinfo", "authorization"),
    *("apikey", "api-key", "api.key", "access-key", "access.key", "accesskey", "account-key", "account.key", "sas-"),
    *("connection-string", "private", "passphrase", "header.", "cookie", ".pem", "certificate.chain"),
)
"""Parts of names whose values open a door, in lower case."""

_NO_SECRET = ("oauth2-server-uri", "token.endpoint", "token-refresh", "token-expires", "token-exchange", "endpoint.url")
"""Parts of names that only look as if."""

_PROVIDED = re.compile(r"\$\{(?P<provider>[^}:$]+):(?P<rest>(?:(?!\$\{)[^}])*+)\}")
"""What Kafka Connect's config providers fill in: `${provider:[path:]key}`."""

_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIALS = re.compile(
    r"://[^/?#@\s]*+@|[?&;](?=[^=&;?]*+=)[^=&;?]*?(?:password|user|token|secret|key|sig)", re.IGNORECASE
)
"""Credentials in an address. Each part is looked at once: the value may be a megabyte, and Python holds its lock meanwhile."""


@dataclass(slots=True)
class Secrets:
    """References given so far.

    Attributes:
        prefix: How the variables of this entry begin.
        values: Variable -> its value, where the configuration had it. Never written anywhere.
        described: Variable -> what to put there.
    """

    prefix: str
    values: dict[str, str] = field(default_factory=dict, repr=False)
    described: dict[str, str] = field(default_factory=dict)

    def hide(self, suffix: str, value: str | None, what: str) -> str:
        """Replace a value by a reference to a variable. `value` None: a person must look up the value for the variable."""
        provided = _PROVIDED.fullmatch(value or "")
        if provided and provided["provider"] == "env" and _ENV.fullmatch(provided["rest"].lstrip(":")):
            name = provided["rest"].lstrip(":")
            self.described[name] = what
            return f"${{env:{name}}}"
        name = self._variable(suffix, value)
        self.described[name] = f"{what}; was ${{{provided['provider']}:…}}" if provided else what
        if value is not None and not _PROVIDED.search(value):
            self.values[name] = value
        return f"${{env:{name}}}"

    def value(self, key: str, value: str, what: str) -> str:
        """A value as it may be written: itself, or a reference where it is secret or filled in by a config provider."""
        if is_secret(key, value) or _PROVIDED.search(value):
            return self.hide(key, value, what)
        return value

    def _variable(self, suffix: str, value: str | None) -> str:
        plain = re.sub(r"[^A-Z0-9]+", "_", f"{self.prefix}_{suffix}".upper()).strip("_")
        name, number = plain, 1
        while name in self.described and self.values.get(name) != value:
            number += 1
            name = f"{plain}_{number}"
        return name


def is_secret(key: str, value: str = "") -> bool:
    """Whether the value of a key must not be written down: its name says so, or it holds credentials in an address."""
    lowered = key.lower()
    if any(part in lowered for part in _NO_SECRET) and not lowered.endswith(("password", "secret")):
        return bool(_CREDENTIALS.search(value))
    return any(mark in lowered for mark in _MARKS) or bool(_CREDENTIALS.search(value))
