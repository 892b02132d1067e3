"""`kw`: registers the verbs and turns every outcome into one document and one exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

import kernelwright
from kernelwright.cli import (
    bench,
    evidence,
    judge_check,
    kernels,
    ladder,
    layout,
    machine,
    optimize,
    sass,
    suite,
    verify,
    why,
)
from kernelwright.cli.runner import EXIT_INTERRUPTED, print_error
from kernelwright.cli.streams import tolerate_closed_streams
from kernelwright.core.commands import set_running_command
from kernelwright.core.errors import InternalError, KernelwrightError, UsageError

app = typer.Typer(
    name="kw",
    help="Find what limits a PyTorch program or GPU kernel, write a faster version, verify it, time it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 fine, 1 a finding (rejected, slower, suspicious), 2 usage or environment, 101 our own bug, "
    "130 interrupted by Ctrl-C (SIGINT).",
)
app.command("why")(why.why)
app.command("optimize")(optimize.optimize)
app.command("verify")(verify.verify)
app.command("bench")(bench.bench)
app.command("judge-check")(judge_check.judge_check)
app.command("machine")(machine.machine)
app.command("layout")(layout.layout)
app.command("sass")(sass.sass)
app.command("ladder")(ladder.ladder)
app.command("kernels")(kernels.kernels)
app.add_typer(suite.app, name="suite")
app.add_typer(evidence.app, name="evidence")


def _print_versions(wanted: bool) -> None:
    if not wanted:
        return
    print(f"kernelwright {kernelwright.__version__}")
    print(f"python {sys.version.split()[0]}")
    for package in ("torch", "triton"):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            print(f"{package} is not installed")
    raise typer.Exit


@app.callback()
def kw(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the versions of this, Python and PyTorch.", is_eager=True, callback=_print_versions
        ),
    ] = False,
) -> None:
    """Find what limits a PyTorch program or GPU kernel, write a faster version, verify it, time it."""


_ParserUsageError = typer.BadParameter.__mro__[1]
"""The class of all usage errors of the parser that Typer carries, wherever this release keeps it."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `kw`. Exit codes: 0 fine, 1 a finding, 2 usage or environment, 101 our own bug, 130 SIGINT."""
    if argv is not None:
        sys.argv = ["kw", *argv]
    tolerate_closed_streams()
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    set_running_command(["kw", *arguments])
    json, debug = "--json" in arguments, "--debug" in arguments
    verb = next((a for a in arguments if not a.startswith("-")), "kw")
    verb = verb if verb in command.commands else "kw"  # pyright: ignore[reportAttributeAccessIssue]
    try:
        return command.main(args=arguments, prog_name="kw", standalone_mode=False) or 0
    except typer.Exit as leave:
        return leave.exit_code
    except _ParserUsageError as fault:  # pyright: ignore[reportGeneralTypeIssues]
        return print_error(verb, UsageError(fault.format_message(), next=f"{_command_path(fault)} --help"), json=json)
    except KernelwrightError as error:
        return print_error(verb, error, json=json)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as fault:
        if debug:
            raise
        return print_error(
            verb, InternalError(f"{type(fault).__name__}: {fault}", next="run it again with --debug"), json=json
        )


def _command_path(fault: Any) -> str:
    """The command whose usage is wrong, such as `kw suite run`."""
    return fault.ctx.command_path if fault.ctx else "kw"
