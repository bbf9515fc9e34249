"""A pool of admin clients, which stay open between requests: one per cluster, for all threads of a process."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from frazil.kafka.client.cluster import Cluster

if TYPE_CHECKING:
    from frazil.kafka.client.client import Admin

IDLE_SECONDS: Final = 60.0
"""After so long without a question a client is closed, at the next question to any cluster: a process that looks at its
pipelines every interval keeps one connection, one that asked once does not for long."""

OLDEST_SECONDS: Final = 600.0
"""After so long a client is replaced, when nobody is asking: certificates and addresses are read when it is made."""


@dataclass(eq=False)
class _PooledClient:
    """A client, the number of requests at work, and when it was opened and last used (monotonic seconds)."""

    client: Admin
    made_at: float
    used_at: float
    users: int = 0
    is_sound: bool = True

    def is_fit(self, now: float) -> bool:
        """Whether it may take another question."""
        return self.is_sound and (self.users > 0 or now - self.made_at < OLDEST_SECONDS)

    def is_idle(self, now: float) -> bool:
        """Whether it has been unused for long."""
        return self.users == 0 and now - self.used_at >= IDLE_SECONDS


@dataclass
class AdminPool:
    """Lends admin clients, since a new one needs a connection with handshakes and has to load metadata first.

    Args:
        make: Makes one.
        clock: Monotonic seconds.
    """

    make: Callable[[Cluster], Admin]
    clock: Callable[[], float] = time.monotonic
    _clients: list[_PooledClient] = field(default_factory=list)
    _of_parent: list[_PooledClient] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self.close)

    @contextmanager
    def lent(self, cluster: Cluster) -> Iterator[Admin]:
        """Lend the client of a cluster. After a failure it is not lent again: the next request gets a new one, without
        outdated leaders or broken connections.

        Raises:
            Terminal: the cluster's properties are not valid.
        """
        pooled = self._take(cluster)
        try:
            yield pooled.client
        except BaseException:
            pooled.is_sound = False
            raise
        finally:
            self._give_back(pooled)

    def close(self) -> None:
        """Close the clients that are not in use."""
        with self._lock:
            closing = [pooled for pooled in self._clients if pooled.users == 0]
            self._clients = [pooled for pooled in self._clients if pooled.users > 0]
        _close(closing)

    def _take(self, cluster: Cluster) -> _PooledClient:
        now = self.clock()
        with self._lock:
            closing = [
                pooled
                for pooled in self._clients
                if pooled.users == 0 and (pooled.is_idle(now) or not pooled.is_fit(now))
            ]
            self._clients = [pooled for pooled in self._clients if pooled not in closing]
            pooled = next(
                (pooled for pooled in self._clients if pooled.client.cluster == cluster and pooled.is_fit(now)), None
            )
            if pooled is None:
                pooled = _PooledClient(self.make(cluster), now, now)
                self._clients.append(pooled)
            elif pooled.users == 0:
                pooled.client.begin_anew()
            pooled.users += 1
        _close(closing)
        return pooled

    def _give_back(self, lent: _PooledClient) -> None:
        with self._lock:
            lent.users -= 1
            lent.used_at = self.clock()
            is_over = lent.users == 0 and not lent.is_sound
            if is_over:
                self._clients = [pooled for pooled in self._clients if pooled is not lent]
        if is_over:
            _close([lent])

    def _begin_anew(self) -> None:
        # In a child none of the client's threads runs: to close it, or to let go of it, would wait for them for ever.
        self._of_parent += self._clients
        self._clients = []
        self._lock = Lock()


def _close(clients: list[_PooledClient]) -> None:
    for pooled in clients:
        pooled.client.close()
