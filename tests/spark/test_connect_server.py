"""What a spark connect server must be for a job, as far as it can be told without one."""

from __future__ import annotations

import pyspark
import pytest

from frazil.errors import Retryable, Terminal
from frazil.spark.connect_server import Server

SERVER = Server("warm", "sc://127.0.0.1:9")


def test_server_of_another_spark_is_used() -> None:
    """Both versions are named: client and server of different releases agree on some plans and differ on others."""
    with pytest.raises(Terminal, match=rf"Spark 4\.0\.0, and pyspark here is {pyspark.__version__}"):
        SERVER.require_version("4.0.0")
    SERVER.require_version(pyspark.__version__)


def test_client_tries_for_long_where_nobody_listens() -> None:
    """The message has the coordinates; another try may help."""
    with pytest.raises(Retryable, match=r"engine warm.*sc://127\.0\.0\.1:9 does not answer"):
        SERVER.require_listening()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("sc://h:1", "sc://h:1/;session_id=x"),
        ("sc://h:1/", "sc://h:1/;session_id=x"),
        ("sc://h:1/;use_ssl=true", "sc://h:1/;use_ssl=true;session_id=x"),
    ],
)
def test_parameters_of_the_address_are_lost(address: str, expected: str) -> None:
    """A session is asked for with them."""
    assert Server("warm", address).remote("x") == expected
