"""`frazil doctor`: checks what runs need of machine, settings, services and tables, and names the next step of each finding."""

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from frazil.cli.output import console
from frazil.cli.output.console import Json
from frazil.errors import EXIT_FAILED

if TYPE_CHECKING:
    from frazil.cli.files.verdict import Verdict
    from frazil.doctor.finding import Finding

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red"}


def doctor(
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="[PIPELINE]", help="Check only this pipeline. Without a name: all, and every entry of the settings."
        ),
    ] = None,
    *,
    spark: Annotated[
        bool, typer.Option("--spark", help="Also run a small Spark job on the executors. It takes some seconds.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check versions, jars, settings, connections, permissions, clocks, topics, positions and tables.

    Each finding has its next step. The command reads no records and commits nothing. It writes a small file to each catalog's
    storage and removes it. The exit code is 1 if a run would fail; warnings don't count.
    """
    findings = list(_findings(pipeline, with_spark=spark))
    failed = any(finding.state == "failed" for finding in findings)
    if as_json:
        console.print_json({"ok": not failed, "checks": [finding.to_body() for finding in findings]})
    else:
        _show(findings)
    if failed:
        raise typer.Exit(EXIT_FAILED)


def _findings(name: str | None, *, with_spark: bool) -> "Iterator[Finding]":
    from frazil.cli.files.verdict import judge
    from frazil.doctor.examine import examine, run_checks
    from frazil.doctor.machine import machine_checks
    from frazil.project import Project
    from frazil.runtime.home import Home

    verdicts = judge([], os.environ)
    yield from verdict_findings(verdicts)
    if verdicts[0].problems:  # without settings, only the machine can be checked
        yield from run_checks(machine_checks(Home.resolve(), needs_spark=False))
        return
    project = Project.load()
    chosen = [project.pipeline(name)] if name is not None else list(project.pipelines.usable.values())
    try:
        yield from examine(project, chosen, is_all=name is None, with_spark=with_spark)
    finally:
        project.close()


def verdict_findings(verdicts: "Iterable[Verdict]") -> "Iterator[Finding]":
    """The verdicts of `frazil validate` as findings: the settings, each file that can't be used, and how many can."""
    from frazil.doctor.finding import Finding

    usable = 0
    for verdict in verdicts:
        check = "settings" if verdict.kind == "settings" else "pipelines"
        if verdict.problems:
            step = "correct the file; `frazil validate` names every key"
            yield Finding(
                check, "failed", f"{verdict.file}: {'; '.join(verdict.problems)}", "a file that can be used", step
            )
        elif verdict.kind == "settings":
            yield Finding(check, "ok", verdict.file)
        else:
            usable += 1
    if usable:
        yield Finding("pipelines", "ok", f"{usable} files can be used")


def _show(findings: "list[Finding]") -> None:
    from rich.text import Text

    table = console.new_table("check", "state", "found", is_tight=True)
    for finding in findings:
        observed = finding.observed if finding.state == "ok" else "see below"
        table.add_row(finding.check, Text(finding.state, _STYLES[finding.state]), observed)
    console.show_table(table)
    for finding in findings:
        if finding.state == "ok":
            continue
        console.say()
        title = (f"{finding.state}: ", _STYLES[finding.state])
        console.say(Text.assemble(title, f"{finding.check}: {finding.observed}"))
        for label, text in (("expected", finding.expected), ("next", finding.next_step)):
            if text:
                console.say(Text.assemble((f"  {label}: ", "bold"), text))
    console.say()
    counts = {state: sum(finding.state == state for finding in findings) for state in _STYLES}
    console.say(", ".join(f"{count} {state}" for state, count in counts.items() if count))
