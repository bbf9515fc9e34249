"""Every kind of alert for real: what people are told, and whether its runbook ends the trouble."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest

from frazil.pipeline.models.alerts import Kind
from tests.integration.alerts.desk import Desk
from tests.integration.alerts.drills import DRILLS, Drill
from tests.runbooks import PARTS, Command, commands_in, runbooks


def test_every_kind_of_alert_has_runbook_and_drill() -> None:
    """Each has a runbook with all parts and with commands, and a drill that types them all."""
    pages = runbooks()

    assert sorted(pages) == sorted(get_args(Kind))
    assert {drill.kind for drill in DRILLS} == set(pages)
    for kind, runbook in pages.items():
        assert tuple(runbook.parts) == PARTS, kind
        assert runbook.see, kind
        assert runbook.do, kind


@pytest.mark.parametrize(
    "drill",
    # A broker that stops takes half a minute; of a table that can't be read, a catalog that is away has the same way.
    [pytest.param(drill, marks=[pytest.mark.full] * bool(drill.fixtures)) for drill in DRILLS],
    ids=lambda drill: f"{drill.kind}-{drill.name}",
)
def test_commands_of_runbook_resolve_its_alert(drill: Drill, desk: Desk, request: pytest.FixtureRequest) -> None:
    """People are told once, why and what next; the commands do what the page says; then it is over, and they are told once."""
    for name in drill.fixtures:
        request.getfixturevalue(name)
    runbook = runbooks()[drill.kind]
    drill.happen(desk)

    firing = [body for _ in range(drill.looks) for body in drill.look(desk)]

    notice = _only(firing, drill, "firing")
    assert re.search(drill.cause, notice["cause"]), notice
    assert re.match(drill.next_step, notice["next_step"]), notice
    assert notice["runbook"] == f"docs/runbooks/{drill.kind}.md"

    desk.type(runbook.see)
    drill.mend(desk)
    named = [Command(line) for line in commands_in(notice["next_step"], desk.root / "FILE.json")]
    desk.type((*named, *runbook.do))
    drill.works(desk)

    over = drill.look(desk)
    if drill.ends:
        assert _only(over, drill, "recovered")["key"] == notice["key"]
    assert not drill.look(desk)


def _only(notices: list[dict[str, Any]], drill: Drill, status: str) -> dict[str, Any]:
    """The one message about the trouble; all there are are about it, or what it leads to."""
    assert sorted(body["kind"] for body in notices) == sorted({drill.kind, *drill.besides}), notices
    assert {body["status"] for body in notices} == {status}
    return next(body for body in notices if body["kind"] == drill.kind)
