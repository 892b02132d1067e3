"""The commands among the next steps: which text a shell can run, and the running command with other options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

_running: list[str] | None = None
_PROGRAM = re.compile(r"kw|pip|python[\d.]*|apt-get|xcode-select|sysctl|ncu")
_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=\S*")
_PLACEHOLDER = re.compile(r"[A-Z]{2,}|.*(\.\.\.|[\[\]()|<>…]).*|.*[,;:]")
_OPTION = re.compile(r"--[a-z][a-z-]*")


def set_running_command(command: Sequence[str]) -> None:
    """Called by the command line with its own words, which `rerun_command` repeats."""
    global _running
    _running = list(command)


def rerun_command(default: str, options: str = "") -> str:
    """The command that runs now, or `default` outside the command line, with `options` such as `--pairs 21` added."""
    command = _running or shlex.split(default)
    return add_options(command, options) or shlex.join(command)


def is_command(text: str) -> bool:
    """Whether a shell runs `text` as it stands: a known program, perhaps with variables, and no placeholder.

    A word such as `FILE` or `DIR` is a placeholder unless it is quoted or part of a longer word; one that ends with a
    comma belongs to a sentence.
    """
    try:
        words = shlex.split(text)
    except ValueError:
        return False
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words.pop(0)
    unquoted = [word for word in shlex.split(text, posix=False) if word[0] not in "'\""]
    is_program = bool(words) and _PROGRAM.fullmatch(Path(words[0]).name) is not None
    return is_program and not any(map(_PLACEHOLDER.fullmatch, unquoted))


def split_commands(steps: Iterable[str]) -> tuple[list[str], list[str]]:
    """The steps that are commands, and the advice that is left."""
    commands, advice = [], []
    for step in filter(None, steps):
        (commands if is_command(step) else advice).append(step)
    return commands, advice


def add_options(command: Sequence[str], options: str) -> str | None:
    """The command again with other options, such as `--device cpu`; None where `options` is not only options.

    Options that the command has already are replaced. What follows `--` stays as it is.
    """
    new = _parse_options(options)
    if not new:
        return None
    end = command.index("--") if "--" in command else len(command)
    kept: list[str] = []
    skip = False
    for word in command[:end]:
        name = word.partition("=")[0]
        if skip or name in new:
            skip = not skip and name in new and name == word and new[name] is not None
            continue
        kept.append(word)
    given = [word for name, value in new.items() for word in (name, value) if word is not None]
    return shlex.join([*kept, *given, *command[end:]])


def _parse_options(options: str) -> dict[str, str | None]:
    """Each option with its value, or None without one; empty where there is anything else, or a placeholder."""
    found: dict[str, str | None] = {}
    last = None
    for word in options.split():
        if _OPTION.fullmatch(word):
            found[last := word] = None
        elif last is None or found[last] is not None or _PLACEHOLDER.fullmatch(word):
            return {}
        else:
            found[last] = word
    return found
