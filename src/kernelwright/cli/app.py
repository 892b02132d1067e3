"""`kw`: puts the verbs together, and makes sure that whatever happens ends in one answer and one exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

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
from kernelwright.cli.answer import fail
from kernelwright.core.errors import InternalError, UsageError

app = typer.Typer(
    name="kw",
    help="Says what a program waits on, writes the faster version, and proves it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
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

_UsageFault = typer.BadParameter.__mro__[1]
"""The class of all usage errors of the parser that Typer carries, wherever this release keeps it."""


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point of `kw`. Exit codes: 0 fine, 1 a finding, 2 usage or environment, 101 our own bug."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    json, debug = "--json" in arguments, "--debug" in arguments
    verb = next((a for a in arguments if not a.startswith("-")), "kw")
    try:
        return command.main(args=arguments, prog_name="kw", standalone_mode=False) or 0
    except typer.Exit as leave:
        return leave.exit_code
    except _UsageFault as fault:  # pyright: ignore[reportGeneralTypeIssues]
        return fail(verb, UsageError(fault.format_message(), next=f"kw {verb} --help"), json=json)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as fault:
        if debug:
            raise
        return fail(
            verb, InternalError(f"{type(fault).__name__}: {fault}", next="run it again with --debug"), json=json
        )
