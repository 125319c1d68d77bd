"""The Typer app: `COMMANDS`, the options before a command, and how errors are printed.

The commands import the library when they run, so `etl --help` starts fast.
"""

import shutil
import sys
from errno import EACCES, EDQUOT, ENOSPC, EPERM, EROFS
from importlib.metadata import PackageNotFoundError, version
from os import strerror
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from etl.cli import output
from etl.cli.commands import (
    certificates,
    cluster,
    dashboard,
    diff,
    doctor,
    drop,
    duplicates,
    export,
    history,
    init,
    lineage,
    logs,
    losses,
    optimize,
    plan,
    recipes,
    release,
    releases,
    repair,
    replay,
    report,
    run,
    sample,
    schema,
    show,
    shuffle,
    stages,
    status,
    submit,
    trace,
    tune,
    vacuum,
    verify,
    warm,
)
from etl.cli.stops import stop_of, stoppable
from etl.compute.print_listener import PrintListener
from etl.errors import TokenlakeError, error_line, torch_error
from etl.visible_text import one_line

COMMANDS: Final = {
    "Start": (init, plan, run),
    "Look": (status, report, show, sample, trace, duplicates, tune, lineage),
    "Versions": (history, diff, release, releases),
    "Training": (shuffle, replay, losses, export),
    "Maintenance": (verify, repair, vacuum, optimize, drop, warm, doctor),
    "Clusters": (submit, cluster, logs, dashboard, certificates),
    "Reference": (recipes, stages, schema),
}
"""The groups of ``etl --help``, and one module per command, which has an ``app`` with its one command."""


_NOT_OF_THE_FILE: Final = (EACCES, EDQUOT, ENOSPC, EPERM, EROFS)
"""Errors of the file system that do not say that a file is damaged."""


_MAX_HELP_WIDTH: Final = 80
_HELP_MARGIN: Final = 2


class _Commands(TyperGroup):
    """Lists the commands by what they are for, and prints a TokenlakeError with its hint and no traceback."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Return the context of a command, whose help also fits a terminal of less than 50 columns."""
        width = min(shutil.get_terminal_size().columns, _MAX_HELP_WIDTH) - _HELP_MARGIN
        return super().make_context(*args, terminal_width=width, **extra)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer passes the context
        """Write the groups of commands, and what to try first."""
        width = max(map(len, self.commands))
        for group, modules in COMMANDS.items():
            names = [module.__name__.rpartition(".")[2] for module in modules]
            with formatter.section(group):
                formatter.write_dl(
                    [
                        (name.ljust(width), self.commands[name].get_short_help_str(80))
                        for name in names
                    ]
                )
        formatter.write_paragraph()
        formatter.write_text("New here: `etl run demo --lake lake`")

    def invoke(self, ctx: Any) -> Any:
        """Run a command; exit with 1 on a TokenlakeError, or raise it with ``--debug``."""
        from etl.storage.store_time_limit import reporting_waits

        try:
            with stoppable(), reporting_waits(PrintListener(sys.stderr).waiting):
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            word, code = stop_of(interrupt)
            output.echo(word, err=True)
            raise typer.Exit(code) from None
        except TokenlakeError as error:
            if ctx.params.get("debug"):
                raise
            output.print_error(error)
            raise typer.Exit(output.exit_code(error)) from error
        except ModuleNotFoundError as error:
            missing = torch_error(error)
            if ctx.params.get("debug") or missing is None:
                raise
            output.print_error(missing)
            raise typer.Exit(output.FAILED) from error
        except Exception as error:
            if ctx.params.get("debug") or not _is_of_damaged_file(error):
                raise
            if isinstance(error, OSError) and error.errno in _NOT_OF_THE_FILE:
                where = "" if error.filename is None else f"{one_line(str(error.filename))}: "
                output.print_error(f"{where}{strerror(error.errno)}")
                output.echo("  hint: check the permissions and the free disk space", err=True)
            elif isinstance(error, OSError) and error.filename is not None:
                output.print_error(f"{one_line(str(error.filename))}: {error.strerror}")
            else:
                output.print_error(f"a file cannot be read ({error_line(error)})")
                output.echo("  hint: `etl verify LAKE` names the files that are damaged", err=True)
            raise typer.Exit(output.FAILED) from error


def _is_of_damaged_file(error: Exception) -> bool:
    """Return whether pyarrow or Polars raised the error, which they do for a damaged data file."""
    if isinstance(error, OSError):
        return not isinstance(error, BrokenPipeError)
    return type(error).__module__.partition(".")[0] in ("pyarrow", "polars")


app = typer.Typer(
    cls=_Commands,
    name="etl",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Turn raw text in object storage into versioned, auditable token tables.",
)


def _print_version(is_requested: bool) -> None:  # noqa: FBT001 - click passes the value
    if not is_requested:
        return
    try:
        output.echo(f"tokenlake {version('tokenlake')}")
    except PackageNotFoundError:
        output.echo("tokenlake (not installed)")
    raise typer.Exit


@app.callback()
def _common(
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="TOKENLAKE_DEBUG", help="Print the traceback of an error."),
    ] = False,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    del debug, show_version  # `_Commands` reads the one, `_print_version` acts on the other


for commands in COMMANDS.values():
    for command in commands:
        app.add_typer(command.app)


def main() -> None:
    """Run the command line."""
    app(prog_name="etl")
