"""Asking before something is changed that can't be taken back by the same command."""

import sys

import typer

QUESTION = "Do it?"


def confirm(*, yes: bool) -> None:
    """Go on if the user says so.

    Args:
        yes: Whether it was said on the command line already.

    Raises:
        typer.BadParameter: There is no terminal to ask at.
        typer.Exit: The answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at; nothing was changed: add --yes to do it")
    if not typer.confirm(QUESTION, default=False, err=True):
        typer.echo("nothing was changed", err=True)
        raise typer.Exit(1)
