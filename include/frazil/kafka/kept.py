"""Admin clients that are kept between questions: one per cluster, for all threads of a process."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from frazil.kafka.cluster import Cluster

if TYPE_CHECKING:
    from frazil.kafka.client import Admin

IDLE_SECONDS: Final = 60.0
"""After so long without a question a client is closed, at the next question to any cluster: a process that looks at its
pipelines every interval keeps one connection, one that asked once does not for long."""

OLDEST_SECONDS: Final = 600.0
"""After so long a client is replaced, when nobody is asking: certificates and addresses are read when it is made."""


@dataclass(eq=False)
class _Kept:
    """A client, how many ask it now, and since when it is there and was last asked (monotonic seconds)."""

    asked: Admin
    made_at: float
    used_at: float
    users: int = 0
    is_sound: bool = True

    def is_fit(self, now: float) -> bool:
        """Whether it may take another question."""
        return self.is_sound and (self.users > 0 or now - self.made_at < OLDEST_SECONDS)

    def is_idle(self, now: float) -> bool:
        """Whether nobody has asked it for long."""
        return self.users == 0 and now - self.used_at >= IDLE_SECONDS


@dataclass
class KeptAdmins:
    """Lends admin clients. A new one costs a connection, with its handshakes; and a pattern waits for its first answers.

    Args:
        make: Makes one.
        clock: Monotonic seconds.
    """

    make: Callable[[Cluster], Admin]
    clock: Callable[[], float] = time.monotonic
    _kept: list[_Kept] = field(default_factory=list)
    _of_parent: list[_Kept] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        os.register_at_fork(after_in_child=self._begin_anew)
        atexit.register(self.close)

    @contextmanager
    def lent(self, cluster: Cluster) -> Iterator[Admin]:
        """The client of a cluster, for some questions. After a failure it is not lent again: the next question has a new
        one, which knows no leader that has changed, and no connection that has died.

        Raises:
            Terminal: the cluster's properties are not valid.
        """
        kept = self._take(cluster)
        try:
            yield kept.asked
        except BaseException:
            kept.is_sound = False
            raise
        finally:
            self._give_back(kept)

    def close(self) -> None:
        """Close those that nobody asks now."""
        with self._lock:
            closing = [of for of in self._kept if of.users == 0]
            self._kept = [of for of in self._kept if of.users > 0]
        _close(closing)

    def _take(self, cluster: Cluster) -> _Kept:
        now = self.clock()
        with self._lock:
            closing = [of for of in self._kept if of.users == 0 and (of.is_idle(now) or not of.is_fit(now))]
            self._kept = [of for of in self._kept if of not in closing]
            found = next((of for of in self._kept if of.asked.cluster == cluster and of.is_fit(now)), None)
            if found is None:
                found = _Kept(self.make(cluster), now, now)
                self._kept.append(found)
            elif found.users == 0:
                found.asked.begin_anew()
            found.users += 1
        _close(closing)
        return found

    def _give_back(self, kept: _Kept) -> None:
        with self._lock:
            kept.users -= 1
            kept.used_at = self.clock()
            is_over = kept.users == 0 and not kept.is_sound
            if is_over:
                self._kept = [of for of in self._kept if of is not kept]
        if is_over:
            _close([kept])

    def _begin_anew(self) -> None:
        # In a child none of the client's threads runs: to close it, or to let go of it, would wait for them for ever.
        self._of_parent += self._kept
        self._kept = []
        self._lock = Lock()


def _close(kept: list[_Kept]) -> None:
    for of in kept:
        of.asked.close()
