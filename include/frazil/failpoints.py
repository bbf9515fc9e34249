"""Named places where a test may end, pause or stop this process, as a fault would.

``FRAZIL_CRASH=decide.committing=kill`` ends the process with SIGKILL when it reaches that point; ``=stop`` pauses it with
SIGSTOP until somebody continues it, ``=term`` asks it to stop; ``decide.committing:2=kill`` means the second time. Commas
separate several of them. Without the variable, a failpoint costs one look-up in the environment.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from enum import StrEnum

VARIABLE = "FRAZIL_CRASH"


class Failpoint(StrEnum):
    """A place in the code where a test can stop a run.

    Commits name their step: claim (topics, before the decision), decide (the deciding one), follow, record (the ledger), capture
    (records of a capture).
    """

    PLANNED = "planned"
    STAGING = "staging"
    """In the process that writes data files: they are open, and nothing is reported yet."""
    STAGED = "staged"
    CREATING = "creating"
    """Before the tables that records name are created."""
    CREATED = "created"
    """The tables exist, but are not announced yet."""
    EVOLVING = "evolving"
    """Before a table's schema is changed for records that were read."""
    EVOLVED = "evolved"
    """The schema is changed; nothing of the batch is staged for it yet."""
    AUDITED = "audited"
    MANIFEST_WRITTEN = "manifest.written"
    BRANCH_MADE = "branch.made"
    BRANCH_STAGED = "branch.staged"
    CLAIM_COMMITTING = "claim.committing"
    CLAIM_RETRYING = "claim.retrying"
    CLAIM_COMMITTED = "claim.committed"
    DECIDE_COMMITTING = "decide.committing"
    DECIDE_RETRYING = "decide.retrying"
    """Between two attempts: another commit came first, and the table was read again."""
    DECIDE_COMMITTED = "decide.committed"
    LETTERS_SENDING = "letters.sending"
    """A dead letter was handed to the producer of the dead-letter topic; each of them passes here."""
    LETTERS_SENT = "letters.sent"
    """The brokers have all dead letters."""
    CAPTURE_SENDING = "capture.sending"
    """A record of a capture was handed to the producer; each of them passes here."""
    CAPTURE_COMMITTING = "capture.committing"
    """Records and position of a capture are with the broker, their transaction is open."""
    CAPTURE_COMMITTED = "capture.committed"
    FOLLOW_COMMITTING = "follow.committing"
    FOLLOW_RETRYING = "follow.retrying"
    FOLLOW_COMMITTED = "follow.committed"
    RECORD_COMMITTING = "record.committing"
    RECORD_RETRYING = "record.retrying"
    RECORD_COMMITTED = "record.committed"


_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
_reached: Counter[str] = Counter()


def hit(point: Failpoint) -> None:
    """Send this process the signal that the variable orders for this failpoint. Outside of tests nothing happens."""
    orders = os.environ.get(VARIABLE)
    if not orders:
        return
    _reached[point] += 1
    for order in orders.split(","):
        place, _, action = order.partition("=")
        name, _, count = place.partition(":")
        if name == point and _reached[point] == int(count or 1):
            os.kill(os.getpid(), _SIGNALS[action])
