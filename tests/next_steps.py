"""Whether a next step is a command that can be run: for `kw` its verb and options are parsed, nothing runs."""

import re
import shlex
import shutil


def can_run(step):
    words = shlex.split(step)
    while re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", words[0]):
        words.pop(0)
    if words[0] != "kw":
        return words[0] in ("pip", "python", "apt-get", "xcode-select", "ncu") or shutil.which(words[0]) is not None
    return parses(words[1:])


def parses(words):
    """Whether `kw` takes these words."""
    import typer

    from kernelwright.cli.app import app

    command, context = typer.main.get_command(app), None
    try:
        while True:
            context = command.make_context(command.name, list(words), parent=context)
            if not hasattr(command, "commands"):
                return True
            _, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
    except typer.Exit as leave:
        return leave.exit_code == 0
    except (typer.Abort, typer.BadParameter.__mro__[1]):
        return False
