"""The keys of a connector: their present names, the finding about each key, and the references that replace secret values."""

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
"""Names of keys in Tabular's early releases, and their present names."""

_LEGACY_OPTIONS: Final = MappingProxyType(
    {
        "routeRegex": "route-regex",
        "routeValues": "route-regex",
        "idColumns": "id-columns",
        "commitBranch": "commit-branch",
    }
)

TABLE_OPTIONS: Final = ("route-regex", "partition-by", "id-columns", "commit-branch")
"""Options of the keys `iceberg.table.<table>.<option>`."""

_PER_TABLE: Final = re.compile(
    rf"iceberg\.table\.(?P<table>.+)\.(?P<option>{'|'.join([*TABLE_OPTIONS, *_LEGACY_OPTIONS])})"
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
"""Keys whose whole name is fixed."""

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
"""Prefixes of keys whose rest is free: a catalog, a converter or a client reads it."""


def present_name(key: str) -> str:
    """The present name of a key, which differs from the key only if that is an old name."""
    if key in LEGACY:
        return LEGACY[key]
    table = per_table(key)
    return f"iceberg.table.{table[0]}.{table[1]}" if table else key


def per_table(key: str) -> tuple[str, str] | None:
    """Table and option of a key that is about one table; the option has its present name."""
    match = _PER_TABLE.fullmatch(key)
    return (match["table"], _LEGACY_OPTIONS.get(match["option"], match["option"])) if match else None


Outcome = Literal["carried", "changed", "not_supported", "unknown", "refused"]
"""Carried over; changed in meaning; not supported (to be done by hand); unknown; refused (nothing is written)."""

OUTCOMES: tuple[Outcome, ...] = ("refused", "not_supported", "unknown", "changed", "carried")
"""The most serious first: of two findings about a key, the more serious one counts."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding about one key.

    Attributes:
        key: The key as it was written, or a key that is missing.
        outcome: What becomes of it.
        message: The key's new place, or why it has none. Never a value that may be secret.
        by_hand: What a person should do.
    """

    key: str
    outcome: Outcome
    message: str
    by_hand: str | None = None


class ConnectorKeys:
    """The keys of a connector or a worker, and the findings about them.

    Old names count as the present ones. A key with an empty value counts as missing, because in Kafka Connect it has no effect.
    """

    def __init__(self, config: Mapping[str, str], origin: str = "") -> None:
        self.origin = origin
        self._written: dict[str, list[str]] = {}
        self._values: dict[str, str] = {}
        self._findings: dict[str, Finding] = {}
        self.notes: list[str] = []
        for key, value in config.items():
            self._add(key, value.strip())

    def _add(self, key: str, value: str) -> None:
        name = present_name(key)
        self._written.setdefault(name, []).append(key)
        if name in self._values and self._values[name] != value:
            spellings = " and ".join(self._written[name])
            self.report(name, "refused", f"{spellings} are the same option with two values", "remove the wrong one")
        if value or name not in self._values:
            self._values[name] = value
        if not value:
            self.report(name, "changed", "empty, so it counts as missing")

    def __contains__(self, name: str) -> bool:
        return bool(self._values.get(name))

    def get(self, name: str) -> str | None:
        """The value of a key by its present name; None if it is missing or empty."""
        return self._values.get(name) or None

    @property
    def deprecated_names(self) -> list[str]:
        """The old names that the configuration uses."""
        return sorted(key for name, written in self._written.items() for key in written if key != name)

    def is_true(self, name: str) -> bool:
        """Whether a switch is on. The connector is refused if its value is neither true nor false, as Kafka Connect does."""
        value = (self.get(name) or "").lower()
        if value not in ("", "true", "false"):
            self.report(name, "refused", "neither true nor false: Kafka Connect refuses it", "write true or false")
        return value == "true"

    def below(self, prefix: str) -> dict[str, str]:
        """The keys with a prefix, which is cut off. Keys with empty values are left out."""
        return {name[len(prefix) :]: value for name, value in self._values.items() if name.startswith(prefix) and value}

    def report(self, name: str, outcome: Outcome, message: str, by_hand: str | None = None) -> None:
        """Add a finding about a key. Of several findings the most serious counts; of equally serious ones, the first.

        Only a refusal may be about a missing key; any other finding about one is ignored.
        """
        missing = [name] if outcome == "refused" else []
        for written in self._written.get(name, missing):
            old_name = "" if written == name else f" (old name of {name})"
            earlier = self._findings.get(written)
            if earlier is None or OUTCOMES.index(outcome) < OUTCOMES.index(earlier.outcome):
                self._findings[written] = Finding(self.origin + written, outcome, message + old_name, by_hand)

    def note(self, text: str) -> None:
        """Add a remark that is not about a single key."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def is_refused(self) -> bool:
        """Whether a finding prevents the import of the connector."""
        return any(finding.outcome == "refused" for finding in self._findings.values())

    def unreported(self) -> Iterator[str]:
        """Names of the keys that have no finding yet."""
        for name, written in self._written.items():
            if any(key not in self._findings for key in written):
                yield name

    def close(self, tables: Collection[str] = ()) -> tuple[Finding, ...]:
        """Report the remaining keys, unknown ones with the nearest known name. Returns all findings."""
        table_keys = [f"iceberg.table.{table}.{option}" for table in tables for option in TABLE_OPTIONS]
        for name in list(self.unreported()):
            if name in CANONICAL or name.startswith(_FAMILIES):
                self.report(name, "changed", "has no effect in this configuration, as in Kafka Connect")
                continue
            similar = get_close_matches(name, [*table_keys, *CANONICAL], 1, 0.75)
            hint = f"did you mean {similar[0]}?" if similar else None
            self.report(name, "unknown", "not a key of the sink or of Kafka Connect, so nothing reads it", hint)
        return tuple(
            sorted(self._findings.values(), key=lambda finding: (OUTCOMES.index(finding.outcome), finding.key))
        )


_SECRET_PARTS = (
    *("password", "passwd", "secret", "token", "credential", "jaas", "user.info", "userinfo", "authorization"),
    *("apikey", "api-key", "api.key", "access-key", "access.key", "accesskey", "account-key", "account.key", "sas-"),
    *("connection-string", "private", "passphrase", "header.", "cookie", ".pem", "certificate.chain"),
)
"""Parts of the names of keys with secret values, in lower case."""

_PUBLIC_PARTS = (
    "oauth2-server-uri",
    "token.endpoint",
    "token-refresh",
    "token-expires",
    "token-exchange",
    "endpoint.url",
)
"""Parts of names that look secret, but are not."""

_PROVIDED = re.compile(r"\$\{(?P<provider>[^}:$]+):(?P<rest>(?:(?!\$\{)[^}])*+)\}")
"""What Kafka Connect's config providers fill in: `${provider:[path:]key}`."""

_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CREDENTIALS = re.compile(
    r"://[^/?#@\s]*+@|[?&;](?=[^=&;?]*+=)[^=&;?]*?(?:password|user|token|secret|key|sig)", re.IGNORECASE
)
"""Credentials in an address. The search takes linear time, because the value may be a megabyte."""


@dataclass(slots=True)
class Secrets:
    """Environment variables that take secret values of one entry of the settings file.

    Attributes:
        prefix: The names of the variables begin with it.
        values: Variable -> its value, if the configuration has it. Never written anywhere.
        descriptions: Variable -> what to put there.
    """

    prefix: str
    values: dict[str, str] = field(default_factory=dict, repr=False)
    descriptions: dict[str, str] = field(default_factory=dict)

    def hide(self, suffix: str, value: str | None, description: str) -> str:
        """Replace a value by a reference to a variable. If `value` is None, a person must find the value."""
        provided = _PROVIDED.fullmatch(value or "")
        if provided and provided["provider"] == "env" and _ENV.fullmatch(provided["rest"].lstrip(":")):
            name = provided["rest"].lstrip(":")
            self.descriptions[name] = description
            return f"${{env:{name}}}"
        name = self._variable(suffix, value)
        self.descriptions[name] = f"{description}; was ${{{provided['provider']}:…}}" if provided else description
        if value is not None and not _PROVIDED.search(value):
            self.values[name] = value
        return f"${{env:{name}}}"

    def value(self, key: str, value: str, description: str) -> str:
        """The value as it may be written: a reference if it is secret or comes from a config provider, else itself."""
        if is_secret(key, value) or _PROVIDED.search(value):
            return self.hide(key, value, description)
        return value

    def _variable(self, suffix: str, value: str | None) -> str:
        base = re.sub(r"[^A-Z0-9]+", "_", f"{self.prefix}_{suffix}".upper()).strip("_")
        name, number = base, 1
        while name in self.descriptions and self.values.get(name) != value:
            number += 1
            name = f"{base}_{number}"
        return name


def is_secret(key: str, value: str = "") -> bool:
    """Whether a value must not be written down: the key's name says so, or the value is an address with credentials."""
    lowered = key.lower()
    is_public = any(part in lowered for part in _PUBLIC_PARTS) and not lowered.endswith(("password", "secret"))
    named_secret = not is_public and any(part in lowered for part in _SECRET_PARTS)
    return named_secret or bool(_CREDENTIALS.search(value))
