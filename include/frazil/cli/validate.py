"""`frazil validate`: are the settings and the pipeline files usable, and if not, where exactly."""

from pathlib import Path
from typing import TYPE_CHECKING

from frazil.cli import console

if TYPE_CHECKING:
    from frazil.cli.verdict import Verdict


def _show(verdicts: "list[Verdict]", broken: int) -> None:
    from rich.text import Text

    out = console.out()
    for verdict in verdicts:
        mark = Text("broken  ", style="bold red") if verdict.problems else Text("ok      ", style="green")
        out.print(mark + Text(f"{verdict.kind:8}  {_short(verdict.file)}"), soft_wrap=True)
        for problem in verdict.problems:
            console.say(f"          {problem}")
    console.say(f"{len(verdicts)} files, {broken} broken" if broken else f"{len(verdicts)} files, all usable")


def _short(file: str) -> str:
    """Relative to here where that is shorter."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
