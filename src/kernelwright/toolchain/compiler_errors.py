"""What a C++ compiler wrote, as errors in the user's own lines.

A mistake of the user's can show up in a header: in a macro or a template that their line uses, or at the end of the
file where a brace is missing. The compiler names their line in a note then, and that line is blamed.
"""

from __future__ import annotations

import re
from pathlib import Path

from kernelwright.core.errors import CompileError

ERRORS_SHOWN = 3
_ERROR_LINE = re.compile(r"(?:fatal )?error: |undefined reference to |CPU time limit")
_LOCATION = re.compile(r"^(.*?):(\d+)(?::\d+)?: ")
_MACRO = re.compile(r"in expansion of macro [‘']?(\w+)")
_REQUIRED = re.compile(r"^(.*?):(\d+)(?::\d+)?:\s+required (?:from|by)")


def parse_compile_error(stderr: str, name: str) -> CompileError:
    """The compiler's first errors, those in the user's files first; `where` is the line of the first one.

    Args:
        name: what the compiler calls the user's source. Files in its folder are the user's as well.
    """
    lines = stderr.splitlines()
    errors = _errors(lines, name)
    own = [text for text, is_own in errors if is_own]
    said = own or [text for text, _ in errors] or lines[:ERRORS_SHOWN]
    more = len(said) - ERRORS_SHOWN
    shown = [*said[:ERRORS_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    place = _LOCATION.match(said[0]) if said else None
    where = f"{place[1]}:{place[2]}" if place and (own or not errors) else name
    return CompileError("the compiler refused it:\n" + "\n".join(shown), where=where, next="correct the source")


def _errors(lines: list[str], name: str) -> list[tuple[str, bool]]:
    """Each error, and whether it is in a file of the user's, as written or moved to the line that caused it."""
    found: list[tuple[str, bool]] = []
    required = ""  # the user's line that needs the template in which the next errors are
    at = [i for i, line in enumerate(lines) if _ERROR_LINE.search(line)]
    for before, index, after in zip([-1, *at], at, [*at[1:], len(lines)], strict=False):
        error, context = lines[index], lines[before + 1 : index]
        if any("In instantiation of" in line or "In function" in line for line in context):
            required = ""
        required = next((p for line in context if (p := _user_location(_REQUIRED.match(line), name))), required)
        if _user_location(_LOCATION.match(error), name):
            found.append((error, True))
            continue
        notes = (line for line in lines[index + 1 : after] if ": note: " in line)
        note = next((line for line in notes if _user_location(_LOCATION.match(line), name)), "")
        blamed = _user_location(_LOCATION.match(note), name) or required
        found.append((_relocate(error, blamed, note) if blamed else error, bool(blamed)))
    return found


def _relocate(error: str, place: str, note: str) -> str:
    """`header.h:82:43: error: text` as `mine.cu:3: error: text`, with the macro that the line expands."""
    macro = _MACRO.search(note)
    return f"{place}: {_LOCATION.sub('', error)}{f' (in macro {macro[1]})' if macro else ''}"


def _user_location(match: re.Match[str] | None, name: str) -> str:
    """`file:line` where that is a file of the user's, else nothing."""
    if match is None:
        return ""
    path, own = Path(match[1]), Path(name)
    beside = own.parent.absolute()
    is_own = match[1] == name or (path.absolute().is_relative_to(beside) and path.is_file())
    return f"{match[1]}:{match[2]}" if is_own else ""
