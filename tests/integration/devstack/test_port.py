"""Who listens where."""

from __future__ import annotations

import socket

import pytest

from frazil.errors import Terminal
from frazil.runtime.home import answers, is_free, require_free


def test_a_port_is_busy_while_somebody_listens() -> None:
    """Starting on a taken port fails minutes later, in another process' log."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = int(server.getsockname()[1])

        assert not is_free(number)
        assert answers(number)

    assert is_free(number)
    assert not answers(number)


def test_a_server_on_all_interfaces_is_in_the_way_too() -> None:
    """Docker publishes its ports on every interface."""
    with socket.create_server(("0.0.0.0", 0)) as server:  # noqa: S104, the case under test
        number = int(server.getsockname()[1])

        with pytest.raises(Terminal, match=rf"port {number} (.|\n)*THING_PORT="):
            require_free(number, "THING_PORT", "the thing")


def test_an_ended_connection_does_not_block_a_restart() -> None:
    """The kernel holds closed connections for a minute; `down` and `up` come sooner."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = int(server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", number)):
            accepted, _ = server.accept()
            accepted.close()  # the server closes first, so its side of the connection lingers

    assert is_free(number)
