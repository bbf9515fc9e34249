"""Checks of loopback TCP ports: whether one is free, and whether a server listens on it."""

from __future__ import annotations

import socket
from base64 import b64encode
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from frazil.error_codes import STACK_FAILED
from frazil.runtime.home import LOOPBACK

_CONNECT_SECONDS = 1.0
"""Bounds one connect on the loopback interface, where an answer takes microseconds."""

_ANSWER_SECONDS = 5.0
"""Bounds one answer to a request that costs a server nothing."""


def require_free(port: int, variable: str, component: str) -> None:
    """Check that a server could listen on a port.

    The message names the component that needs the port, and the environment variable that changes it.

    Raises:
        Terminal: Another process listens there.
    """
    if not is_free(port):
        raise STACK_FAILED.terminal(
            f"port {port} of {LOOPBACK}, which {component} needs, is used by another process",
            next_step=f"stop that process, or choose another port with {variable}=PORT",
        )


def is_free(port: int) -> bool:
    """Return whether a server could bind the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an ended one that still wait for late packets are not in
        # the way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Return whether a server accepts connections on the port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def basic_login(user: str, password: str) -> str:
    """Return the header `Authorization` of a user."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def serves(port: int, path: str, authorization: str = "") -> bool:
    """Return whether an HTTP server on the port answers a GET of this path with 200."""
    connection = HTTPConnection(LOOPBACK, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", path, headers={"Authorization": authorization} if authorization else {})
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
