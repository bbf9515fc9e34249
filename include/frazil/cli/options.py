"""Options and arguments that several commands take."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]
PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="Name of a pipeline.", show_default=False)]
