"""Admin clients that are kept between questions."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from frazil.kafka.client.client import IDLE_SECONDS, OLDEST_SECONDS, Admin, AdminPool
from frazil.kafka.client.cluster import Cluster

LOCAL = Cluster("local", {"bootstrap.servers": "127.0.0.1:9092"})
ELSEWHERE = Cluster("other", {"bootstrap.servers": "127.0.0.1:9093"})
NEW_PASSWORD = Cluster("local", {"bootstrap.servers": "127.0.0.1:9092", "sasl.password": "new"})


class FakeAdmin:
    """Stands for an admin client."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.closed, self.begun_anew = cluster, 0, 0

    def forget_errors(self) -> None:
        """Count it."""
        self.begun_anew += 1

    def close(self) -> None:
        """Count it."""
        self.closed += 1


class Lab:
    """Kept clients, and a clock that stands."""

    def __init__(self) -> None:
        self.now = 0.0
        self.admins = AdminPool(cast("Any", FakeAdmin), lambda: self.now)

    def ask(self, cluster: Cluster = LOCAL) -> Any:
        """Ask, and tell which client was asked."""
        with self.admins.lend(cluster) as admin:
            return admin


def fail(lab: Lab) -> Admin:
    """A question that fails."""
    with pytest.raises(LookupError), lab.admins.lend(LOCAL) as admin:
        raise LookupError
    return admin


def test_all_requests_of_a_cluster_share_one_client() -> None:
    """All questions to a cluster go to one client, whoever asks meanwhile; other addresses or credentials are another one."""
    lab = Lab()
    with lab.admins.lend(LOCAL) as first, lab.admins.lend(LOCAL) as second:
        assert first is second
    assert lab.ask() is first
    assert len({id(admin) for admin in (lab.ask(), lab.ask(ELSEWHERE), lab.ask(NEW_PASSWORD))}) == 3


def test_old_client_errors_do_not_explain_a_new_failure() -> None:
    """What a client reported while nobody asked is forgotten before the next question, and never while others ask."""
    lab = Lab()
    with lab.admins.lend(LOCAL) as admin, lab.admins.lend(LOCAL):
        assert cast("Any", admin).begun_anew == 0
    assert lab.ask().begun_anew == 1


def test_failed_client_is_replaced() -> None:
    """After a failure the next question has a new client; the old one is closed when its last user is through."""
    lab = Lab()
    with lab.admins.lend(LOCAL) as second_admin:
        failed = cast("Any", fail(lab))
        assert failed is second_admin
        assert failed.closed == 0
        assert lab.ask() is not failed
    assert failed.closed == 1


@pytest.mark.parametrize(("seconds", "is_kept"), [(IDLE_SECONDS - 1, True), (IDLE_SECONDS, False)])
def test_idle_clients_are_closed(seconds: float, *, is_kept: bool) -> None:
    """A client that nobody asked for a minute is closed by the next question, to whichever cluster."""
    lab = Lab()
    first = lab.ask()
    lab.now += seconds
    lab.ask(ELSEWHERE)
    assert first.closed == (not is_kept)


def test_busy_client_is_replaced_in_time_for_renewed_certificates() -> None:
    """A client that is asked all the time is replaced in the end, for certificates and addresses that changed."""
    lab = Lab()
    first = lab.ask()
    while lab.now < OLDEST_SECONDS:
        assert lab.ask() is first
        lab.now += IDLE_SECONDS / 2
    assert lab.ask() is not first
    assert first.closed == 1


def test_forked_child_opens_a_client_of_its_own() -> None:
    """A child has no threads of its parent's client: it opens one of its own, and never closes that one, which would hang."""
    lab = Lab()
    parents = lab.ask()
    child = os.fork()
    if child == 0:
        lab.now += IDLE_SECONDS
        own = lab.ask()
        lab.admins.close()
        os._exit(0 if own is not parents and parents.closed == 0 and own.closed == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
