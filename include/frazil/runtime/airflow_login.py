"""Finds the Airflow of a command: the home's own with its generated login, or another one that environment variables name."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from frazil.error_codes import AIRFLOW_FAILED
from frazil.extras import require
from frazil.runtime.home import PRIVATE_FILE, Home, private_folder, write_atomically

if TYPE_CHECKING:
    from frazil.runtime.airflow_api import AirflowApi

URL_VARIABLE = "FRAZIL_AIRFLOW_URL"
PASSWORD_VARIABLE = "FRAZIL_AIRFLOW_PASSWORD"  # noqa: S105 - a name
"""With FRAZIL_AIRFLOW_USER, the login at the Airflow of FRAZIL_AIRFLOW_URL."""

TOKEN_VARIABLE = "FRAZIL_AIRFLOW_TOKEN"  # noqa: S105 - a name
"""Replaces user and password: a bearer token, or the name of an entry point of `TOKENS` that returns one."""

TOKENS = "frazil.airflow_tokens"
"""Group of entry points: functions without arguments that return a bearer token of that Airflow."""

_CLIENT = "Airflow's REST API"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Random secrets of a home, stored with mode 600. Only `credentials` shows one, the password."""

    jwt: str = field(repr=False)
    fernet: str = field(repr=False)
    api: str = field(repr=False)
    password: str = field(repr=False)

    def values(self) -> tuple[str, ...]:
        """Return all secrets, to mask them in logs that are quoted."""
        return (self.jwt, self.fernet, self.api, self.password)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The Airflow login."""

    user: str
    password: str = field(repr=False)


def credentials(home: Home) -> Credentials:
    """Return the login of the home's Airflow.

    Raises:
        Terminal: Airflow was never started in this home.
    """
    return Credentials(home.airflow_user, _read_secrets(_secrets_file(home)).password)


def ensure_secrets(home: Home) -> Secrets:
    """Return the home's secrets, created on the first call, and write the login for Airflow."""
    private_folder(home.airflow)
    if not _secrets_file(home).exists():
        write_atomically(_secrets_file(home), json.dumps(asdict(_new_secrets())), mode=PRIVATE_FILE)
    home_secrets = _read_secrets(_secrets_file(home))
    write_atomically(home.airflow_passwords, json.dumps({home.airflow_user: home_secrets.password}), mode=PRIVATE_FILE)
    return home_secrets


def remote_url() -> str | None:
    """Address of the Airflow that FRAZIL_AIRFLOW_URL names; None means the home's own."""
    return os.environ.get(URL_VARIABLE) or None


def any_api(home: Home) -> AirflowApi:
    """Return a client of the Airflow that FRAZIL_AIRFLOW_URL names, or else of the home's own.

    Raises:
        Terminal: The other Airflow's password is not set, or this home's Airflow was never started.
    """
    require("airflow", _CLIENT)
    from frazil.runtime.airflow_api import AirflowApi

    url = remote_url()
    if url is None:
        return api(home)
    password, token = os.environ.get(PASSWORD_VARIABLE, ""), os.environ.get(TOKEN_VARIABLE)
    if not (password or token):
        raise AIRFLOW_FAILED.terminal(
            f"{URL_VARIABLE} is set, and {PASSWORD_VARIABLE} is not set", next_step=f"set it, or {TOKEN_VARIABLE}"
        )
    return AirflowApi(url, home.airflow_user, password, token_maker(token, TOKEN_VARIABLE) if token else None)


def api(home: Home) -> AirflowApi:
    """Return a client with the home's login.

    Raises:
        Terminal: Airflow was never started in this home.
    """
    require("airflow", _CLIENT)
    from frazil.runtime.airflow_api import AirflowApi

    login = credentials(home)
    return AirflowApi(home.airflow_url, login.user, login.password)


def token_maker(token: str, setting: str) -> Callable[[], str]:
    """Return a function that returns a bearer token: that of the entry point `token` of `TOKENS`, or else `token` itself.

    The function raises Retryable if the entry point raises an error.

    Raises:
        Terminal: The entry point can't be loaded. The message names the setting with its name.
    """
    token = token.strip()  # files and variables often end with a newline
    for entry_point in entry_points(group=TOKENS, name=token):
        named = f"{setting} names {entry_point.value}, which"
        try:
            make_token: Callable[[], str] = entry_point.load()
        except (ImportError, AttributeError) as error:
            raise AIRFLOW_FAILED.terminal(
                f"{named} can't be loaded: {error}", next_step="install what its entry point names"
            ) from error
        except Exception as error:  # noqa: BLE001 - foreign code, as below
            raise AIRFLOW_FAILED.terminal(
                f"{named} can't be loaded: {type(error).__name__}", next_step="import it by hand to see what it says"
            ) from None
        return lambda: _call_token_maker(make_token, named)
    return lambda: token


def _call_token_maker(make_token: Callable[[], str], named: str) -> str:
    try:
        return make_token().strip()
    except Exception as error:  # noqa: BLE001 - foreign code; its error may quote the token, or a secret
        raise AIRFLOW_FAILED.retryable(
            f"{named} made no token: {type(error).__name__}", next_step="call it by hand to see what it says"
        ) from None


def _new_secrets() -> Secrets:
    fernet = base64.urlsafe_b64encode(os.urandom(32)).decode()  # a Fernet key is 32 bytes in this form
    return Secrets(secrets.token_urlsafe(48), fernet, secrets.token_urlsafe(48), secrets.token_urlsafe(12))


def _read_secrets(path: Path) -> Secrets:
    try:
        return Secrets(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise AIRFLOW_FAILED.terminal(
            f"no Airflow login: {path} does not exist", next_step="`frazil up` makes one"
        ) from error
    except (ValueError, TypeError) as error:
        raise AIRFLOW_FAILED.terminal(
            f"{path} can't be read", next_step="stop the stack, remove the file, `frazil up`"
        ) from error


def _secrets_file(home: Home) -> Path:
    return home.airflow / "secrets.json"
