"""Values that must not be written down: they become references to environment variables, with a list of what to set."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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
        """A reference instead of a value. `value` None: whoever sets the variable must find the value."""
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
