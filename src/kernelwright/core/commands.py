"""Next steps: the commands among them that run unchanged in a shell, and the running command with other options."""

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
    """Store the words of the current command line for `rerun_command`."""
    global _running
    _running = list(command)


def rerun_command(default: str, options: str = "") -> str:
    """Return the current command, or `default` outside the CLI, with `options` such as `--pairs 21` added."""
    command = _running or shlex.split(default)
    return add_options(command, options) or shlex.join(command)


def is_command(text: str) -> bool:
    """Whether `text` runs unchanged in a shell: a known program, optionally with variables, without placeholders.

    A word such as `FILE` or `DIR` is a placeholder unless it is quoted or part of a longer word. A word that ends
    with a comma marks a sentence.
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
    """Return the steps that are commands, and the others."""
    commands, advice = [], []
    for step in filter(None, steps):
        (commands if is_command(step) else advice).append(step)
    return commands, advice


def add_options(command: Sequence[str], options: str) -> str | None:
    """Return the command with `options` (such as `--device cpu`) set; None if `options` holds anything else.

    Options that the command already has are replaced. Words after `--` are unchanged.
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
    added = [word for name, value in new.items() for word in (name, value) if word is not None]
    return shlex.join([*kept, *added, *command[end:]])


def _parse_options(options: str) -> dict[str, str | None]:
    """Map each option to its value, or None; empty if `options` holds anything else or a placeholder."""
    parsed: dict[str, str | None] = {}
    last = None
    for word in options.split():
        if _OPTION.fullmatch(word):
            parsed[last := word] = None
        elif last is None or parsed[last] is not None or _PLACEHOLDER.fullmatch(word):
            return {}
        else:
            parsed[last] = word
    return parsed
