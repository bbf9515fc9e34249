"""What a job gets by files, and hands back."""

from __future__ import annotations

from pathlib import Path

from frazil.local.home import Home
from frazil.spark.handover import handed_over


def test_a_result_of_a_killed_run_is_taken_for_that_of_its_retry(tmp_path: Path) -> None:
    """A file that was left behind under the same id is removed before the job begins."""
    home = Home.resolve({"FRAZIL_HOME": str(tmp_path)})
    with handed_over(home, "orders", "manual__1", "{}") as handover:
        handover.result.write_text("new")
        assert handover.found() == "new"
    handover.result.write_text("of a run that was killed")

    with handed_over(home, "orders", "manual__1", "{}") as handover:
        assert handover.found() is None
