"""The command `frazil`: its sub-commands, and how errors are reported.

An error of Frazil ends the command with its message, its next step and the exit code of its class, without a stack
trace; `--debug` shows the trace as well.
"""

import atexit
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from io import TextIOWrapper
from types import FrameType
from typing import Annotated, Any

import typer

from frazil import __version__
from frazil.cli.demo import demo
from frazil.cli.files import doctor, import_connector, new, validate
from frazil.cli.operate import produce, repair, run, stack, status
from frazil.cli.output import console
from frazil.cli.output.console import examples, help_text
from frazil.cli.reports import dead_letters, history, sql, verify
from frazil.error_codes import INTERNAL
from frazil.errors import EXIT_FAILED, FrazilError, add_code, without_values
from frazil.gc_tuning import collect_rarely
from frazil.spark.jobs.imports import leave_out_pandas

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, by the convention of shells: 128 plus the signal's number."""

_DEBUG = "--debug"

app = typer.Typer(
    name="frazil",
    help="Kafka topics become Iceberg tables: bounded batches with the offsets inside the snapshot.",
    epilog="Begin with [cyan]frazil init[/cyan]; it shows what comes next. "
    "FRAZIL_HOME, FRAZIL_SETTINGS and FRAZIL_PIPELINES name other places of its files.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "Build": (
        new.init,
        new.peek,
        new.new,
        new.schema,
        validate.validate,
        repair.apply,
        import_connector.import_connector,
        validate.plugins,
        produce.produce,
        demo.demo,
    ),
    "Run": (stack.up, stack.down, run.plan, run.run, produce.capture, stack.pause, stack.resume, stack.stop),
    "Watch": (status.status, history.history, status.lag, sql.sql, verify.verify, doctor.doctor),
    "Repair": (repair.replay, repair.reset, repair.repair),
    "Maintain": (run.maintain,),
}
"""All sub-commands but `dead-letters`, in the groups and the order of the help."""

_EXAMPLES = """\
frazil init
frazil init lake --kafka broker1.example.org:9092
frazil peek orders
frazil peek orders --from earliest --count 3
frazil new orders --topic orders
frazil new orders --topic orders --table shop.orders --records 10000
frazil schema pipeline
frazil up
frazil up --only kafka
frazil down
frazil status
frazil status --watch
frazil status pizzas --json
frazil produce completed-pizzas --generate pizzas --count 100000
frazil produce payments --file lines.json
frazil capture access_log --dry-run
frazil capture access_log
frazil capture access_log --from end --reason "the old files are known"
frazil validate
frazil validate pizzas
frazil validate include/pipelines/pizzas.yaml
frazil validate --diff origin/main --markdown
frazil apply pizzas --dry-run
frazil apply pizzas --reason "the menu has a price"
frazil import-connector orders-sink.json --worker connect-distributed.properties
frazil import-connector orders-sink.json --worker worker.properties --catalog lake --positions connect
frazil doctor
frazil doctor pizzas --spark
frazil doctor --json
frazil plan pizzas
frazil plan pizzas --json
frazil run pizzas
frazil run pizzas --json
frazil run pizzas --dry-run --from earliest
frazil pause pizzas
frazil resume pizzas
frazil stop pizzas
frazil pause pizzas && frazil stop pizzas --json
frazil history pizzas
frazil history pizzas --files
frazil history pizzas --json
frazil lag pizzas
frazil lag pizzas --json
frazil verify pizzas
frazil verify pizzas --from 2026-05-01T10:00:00+00:00 --json
frazil replay pizzas --from 2026-05-01T10:00:00Z --to 2026-05-01T12:00:00Z --reason "menu was wrong"
frazil replay pizzas --from offsets.json --yes
frazil reset pizzas --to earliest --reason "table was made anew" --dry-run
frazil reset pizzas --to offsets.json --topic completed-pizzas --reason "skip a poisoned stretch"
frazil repair pizzas rpc.pizzas__dead_letters --reason "table was dropped"
frazil repair pizzas rpc.pizzas__dead_letters --no-replay --reason "letters were test data"
frazil maintain pizzas --dry-run
frazil maintain pizzas
frazil maintain pizzas --table rpc.pizzas --step compaction --force
frazil sql "SELECT store_id, count(*) FROM rpc.pizzas GROUP BY ALL"
frazil sql "FROM rpc.pizzas.snapshots"
frazil plugins
frazil plugins --json
frazil demo
DEMO_EXIT=1 frazil demo --records 5000
"""
"""Examples for the help, one per line. Each belongs to the last command that its line names."""


def _show_version(value: bool) -> None:  # noqa: FBT001 - the shape of an option's callback
    if value:
        typer.echo(f"frazil {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    *,
    debug: Annotated[bool, typer.Option(_DEBUG, help="Show stack traces.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


for _group, _members in _COMMANDS.items():
    for _command in _members:
        _name = _command.__name__.replace("_", "-")
        _epilog = examples(_EXAMPLES, f"frazil {_name}")
        app.command(_name, help=help_text(_command), epilog=_epilog, rich_help_panel=_group)(_command)

app.add_typer(dead_letters.app, rich_help_panel="Repair")
app.command(hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(repair.settle)


def main() -> int:
    """Run the command of this process; returns its exit code."""
    codes: list[int] = []
    atexit.register(_end_at_once, codes)
    _exit_on_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names from files and schemas may have characters that no encoding has
            stream.reconfigure(errors="backslashreplace")
    collect_rarely()
    leave_out_pandas()  # the job of Spark, which needs it, runs in another process
    # PyIceberg warns of each ORC file, since Arrow reads its times as nanoseconds. The table has microseconds: nothing is lost.
    logging.getLogger("pyiceberg.io.pyarrow").addFilter(
        lambda log_record: "'ns' timestamp precision" not in log_record.getMessage()
    )
    codes.append(invoke(sys.argv[1:]))
    return codes[0]


def _end_at_once(codes: Sequence[int]) -> None:
    """End the process after all other exit handlers, without Python's clean-up: it takes a third of a small run's CPU time."""
    with suppress(OSError, ValueError):  # then Python's own exit flushes again, and reports the error
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        if codes:
            os._exit(codes[0])


def invoke(argv: Sequence[str]) -> int:
    """Run one command.

    Returns:
        The exit code: 0, that of the error's class (see `frazil.errors`), 2 for wrong arguments, 130 for Ctrl-C
        where no run is at work.
    """
    arguments, debug = _debug_first(argv)
    try:
        typer.main.get_command(_application_for(arguments))(arguments, prog_name="frazil")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except FrazilError as error:
        return _report_failure(error.label, error.message_with_code, error.next_step, error.exit_code, debug=debug)
    except Exception as error:  # noqa: BLE001 - the outermost edge: an unexpected error becomes one line
        message = add_code(f"{type(error).__name__}: {without_values(str(error))}", INTERNAL)
        step = "run it again with --debug and report what it shows"
        return _report_failure("unexpected error", message, step, EXIT_FAILED, debug=debug)
    return 0


def _application_for(arguments: Sequence[str]) -> typer.Typer:
    """The application, reduced to the command that is called: Typer reads the signature of each command, 50 ms in all."""
    called = next((argument for argument in arguments if argument != _DEBUG), "")
    commands = [command for command in app.registered_commands if command.name == called]
    if not commands:
        return app
    application = copy(app)
    application.registered_commands, application.registered_groups = commands, []
    return application


def _debug_first(argv: Sequence[str]) -> tuple[list[str], bool]:
    """Move `--debug` to the front, where Typer expects it: people add it at the end of a command that failed."""
    end = argv.index("--") if "--" in argv else len(argv)
    debug = _DEBUG in argv[:end]
    arguments = [part for part in argv[:end] if part != _DEBUG]
    return [*([_DEBUG] if debug else []), *arguments, *argv[end:]], debug


def _exit_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into an exit of Python, so that the command stops the processes that it started."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)


def _report_failure(label: str, message: str, next_step: str | None, code: int, *, debug: bool) -> int:
    if debug:
        console.err().print(traceback.format_exc().rstrip(), soft_wrap=True)
    console.show_failure(label, message, next_step)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # after `frazil … | head` Python would print at exit that it could not flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
