"""`frazil dead-letters replay`: letters that are good under the present pipeline file become rows."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli import console
from frazil.cli.confirm import confirm
from frazil.cli.letter_options import Codes, Since, Tables, Topics, Until, choice_of, naming
from frazil.cli.options import Json, PipelineName, Reason, Yes
from frazil.cli.progress import Progress
from frazil.cli.run import by_hand, new_run_id

if TYPE_CHECKING:
    from frazil.run.dead_letters import BroughtHome


def replay(  # noqa: PLR0913 - the options of a command
    pipeline: PipelineName,
    *,
    codes: Codes = None,
    topics: Topics = None,
    tables: Tables = None,
    since: Since = None,
    until: Until = None,
    records: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="TOPIC/PARTITION/OFFSET[/TABLE]",
            help="Only letters of this record: all, or that of one table. May be repeated.",
        ),
    ] = None,
    reason: Reason,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look what would become of them.")] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Decode open dead letters again, from what the table keeps of them, and land what is good now, exactly once.

    Kafka is not asked, so it does not matter whether it still holds the records. The position stays. Letters that are
    still bad stay, with their new reason and one more attempt.
    """
    from frazil.project import Project
    from frazil.run.dead_letters import bring_home
    from frazil.run.scope import Scope

    choice = naming(choice_of(codes, topics, since, tables, until), records or ())
    project = Project.load()
    progress = Progress()
    scope = Scope.of(project, project.pipeline(pipeline), progress.done)
    request = replace(by_hand(new_run_id()), reason=reason)
    with progress:
        look = bring_home(scope, choice, request, dry_run=True)
    if dry_run or not look.tried:
        _show(pipeline, look, as_json=as_json, would=True)
        return
    if not as_json:
        _show(pipeline, look, as_json=False, would=True)
    confirm(yes=yes)
    with progress:
        done = bring_home(scope, choice, request)
    _show(pipeline, done, as_json=as_json, would=False)


def _show(pipeline: str, found: "BroughtHome", *, as_json: bool, would: bool) -> None:
    if as_json:
        from dataclasses import asdict

        console.print_json({"pipeline": pipeline, "done": not would} | asdict(found))
        return
    if found.bare:
        console.say(
            f"{found.bare:,} keep nothing of their record (dead_letters.payload): frazil replay reads it from Kafka"
        )
    if not found.tried:
        console.say(f"{pipeline}: no open dead letter to decode again")
        return
    verb = "would become rows" if would else "are rows now"
    console.say(f"{pipeline}: of {found.tried:,} dead letters {found.landed:,} {verb}" + _rest(found))
    for code, count in sorted((found.dead_codes or {}).items()):
        console.say(f"still dead, {code}: {count:,}")


def _rest(found: "BroughtHome") -> str:
    batches = f" (batch {', '.join(map(str, found.batches))})" if found.batches else ""
    return (f", {found.filtered:,} are left out on purpose" if found.filtered else "") + batches
