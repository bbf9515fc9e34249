"""What whoever starts a job tells its process, in variables."""

from __future__ import annotations

from typing import Final

SUBMITTER_VARIABLE: Final = "FRAZIL_SUBMITTER"
"""Process id of whoever waits for the job: killed, it can't stop the job any more, so the job looks."""

ENGINE_VARIABLE: Final = "FRAZIL_SPARK_ENGINE"
"""Name of the engine whose spark connect server the job's session is on. Without: the job's own Spark."""

LOCAL_VARIABLE: Final = "FRAZIL_SPARK_LOCAL"
"""Set where the job's own Spark is this process's JVM and nothing else: it may be started early, and dropped, at no cost."""
