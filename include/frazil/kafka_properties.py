"""Properties of a Kafka client that only the client's own process knows: a token in place of a password, and the rack.

The settings name a provider of tokens and an environment variable. Executors get these names, and look up token and rack themselves.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, entry_points
from pathlib import PurePath
from threading import Thread
from traceback import extract_tb
from types import MappingProxyType
from typing import Any, Final

from frazil.error_codes import BAD_SETTING, KAFKA_LOGIN_REFUSED
from frazil.errors import FrazilError
from frazil.extras import require

GROUP: Final = "frazil.kafka_tokens"
"""Entry points by which other packages bring providers of tokens. A provider is called with `sasl.oauthbearer.config`, a text
that may be empty, and returns what confluent-kafka's `oauth_cb` does: the token, when it expires (seconds since 1970), and, if
the broker wants them, a principal and a dict of extensions."""

TOKEN_PROVIDER: Final = "oauth_cb"  # noqa: S105 - a name
"""Property that holds the name of a provider until a client is made, and then the function that the client calls."""

RACK_VARIABLE: Final = "client.rack.variable"
"""Property that names an environment variable. When a client is made, `client.rack` with the variable's value replaces it."""

PROVIDER_SECONDS: Final = 10.0
"""Bounds one call of a provider, which may have to load a library. The user learns of a failure within 15 s."""

_LATEST_SECONDS: Final = 10 * 366 * 86_400
"""An expiry more than ten years ahead is taken for one in milliseconds."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")

_LENGTHS: Final = (2, 3, 4)
"""Lengths of a provider's result: principal and extensions may be missing."""

Token = tuple[str, float, str, dict[str, str]]
"""Token, expiry in seconds since 1970, principal, extensions."""

TokenProvider = Callable[[str], Any]


def client_properties(cluster: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as confluent-kafka takes them, for a client in this process.

    Without the rack's variable on this machine, the client reads from the leaders. The first token is fetched here, since the
    client's own error would not say why there is none.

    Raises:
        FrazilError: As `fetch_token`.
    """
    client_settings = dict(properties)
    rack = os.environ.get(client_settings.pop(RACK_VARIABLE, ""))
    if rack:
        client_settings["client.rack"] = rack
    if TOKEN_PROVIDER in properties:
        first = [fetch_token(cluster, properties)]
        client_settings[TOKEN_PROVIDER] = lambda _: first.pop() if first else fetch_token(cluster, properties)
    return client_settings


def fetch_token(cluster: str, properties: Mapping[str, Any]) -> Token:
    """Fetch a token from the provider that a cluster's properties name. No message quotes what the provider returns or raises.

    Raises:
        Terminal: The provider is not installed, or what it returns is no token.
        Retryable: The provider raised an error or did not answer in time, or its token has expired.
    """
    name = properties[TOKEN_PROVIDER]
    where = f"Kafka cluster {cluster!r}: the token provider {name!r}"
    load, place = _find_provider(cluster, name)
    answer: Future[Any] = Future()
    # Only a thread bounds foreign code: one that hangs is abandoned, and the process ends without waiting for a daemon.
    Thread(
        target=_call_provider, args=(load, properties.get("sasl.oauthbearer.config", ""), answer), daemon=True
    ).start()
    try:
        error = answer.exception(PROVIDER_SECONDS)
    except TimeoutError:
        raise KAFKA_LOGIN_REFUSED.retryable(
            f"{where} gave no token within {PROVIDER_SECONDS:g} s",
            next_step=f"try again; if it persists, let {place} give up earlier, and check what it waits for",
        ) from None
    if isinstance(error, FrazilError):
        raise error
    if error is not None:
        frame = extract_tb(error.__traceback__)[-1]
        module, _, function = place.partition(":")
        # Without the error's text, and without it as a cause: both may quote the token, or the secret that it is made from.
        raise KAFKA_LOGIN_REFUSED.retryable(
            f"{where} failed: {type(error).__name__} at line {frame.lineno} of {PurePath(frame.filename).name}",
            next_step="try again; if it persists, call it on the same machine to see its error:"
            f" python -c 'import {module} as p; p.{function}(\"\")', with sasl.oauthbearer.config between the quotes",
        )
    return _checked_token(answer.result(), where, place)


def _call_provider(load: Callable[[], TokenProvider], config: str, answer: Future[Any]) -> None:
    try:
        answer.set_result(load()(config))
    except BaseException as error:  # noqa: BLE001 - foreign code; `fetch_token` raises what its error means
        answer.set_exception(error)


def _find_provider(cluster: str, name: str) -> tuple[Callable[[], TokenProvider], str]:
    """A function that loads the provider of that name, and where the provider is: `module:function`."""
    if name in PROVIDERS:
        return lambda: PROVIDERS[name], f"{__name__}:{PROVIDERS[name].__name__}"
    installed = {entry_point.name: entry_point for entry_point in entry_points(group=GROUP)}
    setting = f"clusters.{cluster}.token_provider of the settings"
    if name not in installed:
        raise BAD_SETTING.terminal(
            f"Kafka cluster {cluster!r}: no token provider {name!r} is installed here; installed are"
            f" {', '.join(sorted({*PROVIDERS, *installed}))}",
            next_step=f"correct {setting}; or install the package that has this entry point in the group {GROUP}, where pipelines"
            " run and on their executors",
        )
    return lambda: _load(cluster, installed[name]), installed[name].value


def _load(cluster: str, entry_point: EntryPoint) -> TokenProvider:
    """Load the function of an entry point. This imports its module, which is foreign code."""
    try:
        provider: TokenProvider = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise BAD_SETTING.terminal(
            f"Kafka cluster {cluster!r}: the token provider {entry_point.name!r} can't be loaded from {entry_point.value}: {error}",
            next_step="install the package of the entry point where pipelines run and on their executors",
        ) from error
    if not callable(provider):
        raise BAD_SETTING.terminal(
            f"Kafka cluster {cluster!r}: the token provider {entry_point.name!r} is a {type(provider).__name__}: expected a function",
            next_step=f"let the entry point {entry_point.name} of {GROUP} name a function",
        )
    return provider


def _checked_token(answer: Any, where: str, place: str) -> Token:
    problem = _token_problem(answer)
    if problem is not None:
        raise KAFKA_LOGIN_REFUSED.terminal(
            f"{where} returned no token: {problem}",
            next_step=f"let {place} return (token, expiry in seconds since 1970); a principal and a dict of extensions may follow",
        )
    token, expiry, principal, extensions = _parts(answer)
    if expiry <= time.time():
        raise KAFKA_LOGIN_REFUSED.retryable(
            f"{where} returned a token that expired at {datetime.fromtimestamp(max(expiry, 0), UTC):%Y-%m-%dT%H:%M:%SZ}",
            next_step="try again; if it persists, set this machine's clock, or let the provider make a token for each call",
        )
    return token, float(expiry), principal, extensions


def _parts(answer: Any) -> Any:
    """Token, expiry, principal and extensions; the last two are empty where an answer ends before them."""
    return (*answer, *("", {})[len(answer) - 2 :])


def _token_problem(answer: Any) -> str | None:
    """Why a provider's result is no token, without quoting the result; None if it has the form of a token."""
    if not isinstance(answer, tuple | list) or len(answer) not in _LENGTHS:
        size = f" of {len(answer)}" if isinstance(answer, tuple | list) else ""
        return f"expected (token, seconds since 1970), found {type(answer).__name__}{size}"
    token, expiry, principal, extensions = _parts(answer)
    is_number = isinstance(expiry, int | float) and not isinstance(expiry, bool)
    is_near = is_number and expiry < time.time() + _LATEST_SECONDS
    is_dict = isinstance(extensions, dict) and all(
        isinstance(text, str) for pair in extensions.items() for text in pair
    )
    checks = (
        (isinstance(token, str) and _TOKEN.fullmatch(token), token, "a token of printable ASCII characters, no spaces"),
        (is_number, expiry, "the expiry in seconds since 1970"),
        (is_near, expiry, "the expiry in seconds since 1970, not milliseconds, within ten years"),
        (isinstance(principal, str), principal, "a text as principal"),
        (is_dict, extensions, "a dict of texts as extensions"),
    )
    return next((f"expected {form}, found {type(part).__name__}" for holds, part, form in checks if not holds), None)


def msk_iam(config: str) -> tuple[str, float]:
    """The token of Amazon MSK's IAM access control: an address, signed here with AWS credentials, that is valid for 15 minutes.

    Args:
        config: `region=REGION profile=PROFILE`. Both are optional: without them AWS's usual variables and files count.

    Raises:
        Terminal: An unknown option, or no region.
        Retryable: No credentials.
    """
    require("msk", "the token provider msk-iam")
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.session import Session

    options = dict(option.partition("=")[::2] for option in config.replace(",", " ").split())
    session = Session(profile=options.get("profile"))
    region = options.get("region") or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if not region or options.keys() - {"region", "profile"}:
        raise BAD_SETTING.terminal(
            f"the token provider 'msk-iam' expected region=REGION and perhaps profile=PROFILE, found {', '.join(sorted(options)) or 'no region'}",
            next_step="set sasl.oauthbearer.config of the cluster's properties, as region=eu-central-1, or the variable AWS_REGION",
        )
    if session.get_credentials() is None:
        # Retryable, because a missing role looks like a metadata service of the machine that does not answer for a moment.
        raise KAFKA_LOGIN_REFUSED.retryable(
            "the token provider 'msk-iam' found no AWS credentials here",
            next_step="if it persists, give this machine or pod a role, set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY where it runs,"
            " or set profile=PROFILE in sasl.oauthbearer.config",
        )
    if "profile" in options:
        token, expiry_ms = MSKAuthTokenProvider.generate_auth_token_from_profile(region, options["profile"])
    else:
        token, expiry_ms = MSKAuthTokenProvider.generate_auth_token(region)
    return token, expiry_ms / 1000


PROVIDERS: Final[Mapping[str, TokenProvider]] = MappingProxyType({"msk-iam": msk_iam})
"""Token providers that come with Frazil, by name."""
