"""`frazil up` and `down`, and how the embedded stack is."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import typer

from frazil.cli.output import console
from frazil.cli.output.progress import Progress
from frazil.error_codes import BAD_SETTING, NAME_UNKNOWN
from frazil.runtime.home import Home

_STATE_STYLES = {"running": "green", "dead": "bold red", "stopped": "dim"}


def up(
    *,
    only: Annotated[
        Literal["kafka", "airflow", "spark", "postgres", "s3", "catalog", "registry", "cluster"] | None,
        typer.Option(
            help="Start this part only. All when it is left out; [cyan]spark[/cyan]: an engine's managed server."
        ),
    ] = None,
    profile: Annotated[
        Literal["embedded", "production"] | None,
        typer.Option(
            help="[cyan]production[/cyan]: Kafka with TLS and passwords, a Schema Registry, an S3 server, a REST catalog,"
            " PostgreSQL and a Spark cluster of two workers, without Docker.",
            show_default="what this home had before, at first embedded",
        ),
    ] = None,
) -> None:
    """Start the stack: a Kafka broker, Airflow, and the server of a managed Spark engine, on the loopback interface.

    What runs already is left alone. State, logs and jars lie in FRAZIL_HOME, by default [cyan].frazil[/cyan].
    New DAGs wait in Airflow until they are unpaused.
    """
    from frazil.devstack import stack
    from frazil.devstack.parts import names

    former = Home.resolve()
    home = replace(former, profile=profile or former.profile)
    if only not in (None, "spark", *names(home.profile)):
        raise NAME_UNKNOWN.terminal(
            f"profile {home.profile} has no part {only}",
            next_step=f"its parts: {', '.join(names(home.profile))}; or --profile production",
        )
    # Of a home that changes its profile the settings are not there yet.
    starts_server = only in (None, "spark") and home.profile == former.profile
    up_server = server_start(is_asked_for=only == "spark") if starts_server else None
    with Progress() as progress:
        if only is None or only != "spark":
            stack.up(home, None if only is None else [only], progress.done)
            if only in (None, "airflow"):
                progress.done(f"airflow: log in as {home.airflow_user}, with the password in {home.airflow_passwords}")
        if up_server is not None:
            up_server(progress.done)


def server_start(*, is_asked_for: bool) -> Callable[[Callable[[str], None]], None] | None:
    """A function that starts the managed server by the present settings. Broken settings are reported before anything starts."""
    from frazil.project import Project
    from frazil.spark.submit.server import managed_engine, start_server

    project = Project.load()
    engine = managed_engine(project)
    if engine is None:
        if is_asked_for:
            raise BAD_SETTING.terminal(
                f"{project.settings_file}: no engine has a server that Frazil manages",
                next_step="give one `type: connect` and `managed: true`, see docs/engines.md",
            )
        return None

    return partial(start_server, project, engine)


def down() -> None:
    """Stop every process of the embedded stack. Topics and tables stay."""
    from frazil.devstack import stack

    with Progress() as progress:
        stack.down(Home.resolve(), progress.done)


def show_stack(home: Home) -> None:
    """Print which processes of the embedded stack run, and where it is reached; nothing if it was never started."""
    from rich.text import Text

    from frazil.devstack import stack

    if not home.stack.is_file():
        return
    stack_status = stack.status(home)
    facts = stack_status.to_json()
    table = console.new_table("component", "state", "pid", "since (UTC)")
    for component in stack_status.components:
        since = f"{component.since:%Y-%m-%d %H:%M:%S}" if component.since else ""
        state = Text(component.state, style=_STATE_STYLES[component.state])
        table.add_row(component.name, state, str(component.pid or ""), since)
    console.show_table(table)
    console.say()
    for part, address in facts["addresses"].items():
        if part != "catalog":
            console.say(f"{part:<9}{address}")
    console.say(
        f"catalog  {facts['catalog']['name']}: {facts['catalog']['uri']}, tables in {facts['catalog']['warehouse']}"
    )
    console.say()
