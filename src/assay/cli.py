"""The command line: each command is a few lines that call other modules; torch is imported only when needed."""

from __future__ import annotations

import faulthandler
import gc
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from assay.cli_card import card
from assay.cli_certify import certify, check
from assay.cli_data import data
from assay.cli_extract import extract, inspect
from assay.cli_live import serve, watch
from assay.cli_records import pack, probe, repeat, report
from assay.cli_runs import compare, run, study
from assay.cli_show import list_, show
from assay.cli_stores import merge, status, work
from assay.cli_theory import measure_theory, prove, size
from assay.errors import BadInput

# PyTorch makes hundreds of thousands of objects as it is imported: looking for garbage among them took a fifth of the
# time until the first step. Worker processes import this module first, too.
gc.set_threshold(200_000)

app = typer.Typer(
    name="assay",
    help="Assay measures what a sequence architecture can compute.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: the boxes of rich take longer to import than all else
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
COMMANDS: tuple[Callable[..., None], ...] = (run, compare, card, study, list_, show, data, prove, size, measure_theory)
COMMANDS += (report, repeat, probe, certify, check, extract, inspect, pack, merge, status, watch, serve, work)
for command in COMMANDS:
    first, *_ = (command.__doc__ or "").splitlines()
    sentence = first.partition(". ")[0].rstrip(".") + "."  # given as such it is wrapped; else it would be cut
    app.command(command.__name__.strip("_").replace("_", "-"), short_help=sentence)(command)


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"assay {version('assay')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: bad input ends with one line and exit code 2, never with a traceback."""
    faulthandler.enable(2, all_threads=False)  # a user's class that crashes the interpreter is named, with the line
    sys.path.append("")  # so that module:Class finds a file in the current folder
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], standalone_mode=False))
    except BadInput as error:
        message = " ".join(str(error).split())
    except PermissionError as error:
        message = f"cannot read or write {error.filename}: {error.strerror}"
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output is gone
        sys.exit(141)
    except Exception as error:
        # Errors of the option parser, whose class typer does not export.
        if not hasattr(error, "format_message"):
            raise
        message = " ".join(error.format_message().split())
    typer.secho(f"assay: {message}", fg="red", err=True)
    sys.exit(2)
