"""Parser of C++ compiler output that attributes errors to the user's lines.

A user error can be reported inside a header: in a macro or a template that the user's line expands, or at the end of
the file when a brace is missing. The compiler then names the user's line in a note, and the error is moved there.
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
    """Build a CompileError from the first errors, those in user files first; `where` is the line of the first one.

    Args:
        name: the name of the user's source in the output. Other files in its folder count as the user's.
    """
    lines = stderr.splitlines()
    errors = _errors(lines, name)
    in_user_files = [text for text, is_own in errors if is_own]
    messages = in_user_files or [text for text, _ in errors] or lines[:ERRORS_SHOWN]
    more = len(messages) - ERRORS_SHOWN
    shown = [*messages[:ERRORS_SHOWN], *([f"and {more} more"] if more > 0 else [])]
    location = _LOCATION.match(messages[0]) if messages else None
    where = f"{location[1]}:{location[2]}" if location and (in_user_files or not errors) else name
    return CompileError("compilation failed:\n" + "\n".join(shown), where=where, next="fix the source and run again")


def _errors(lines: list[str], name: str) -> list[tuple[str, bool]]:
    """Each error, and whether it is in a user file, either as reported or moved to the user line that caused it."""
    errors: list[tuple[str, bool]] = []
    required = ""  # the user line that instantiates the template of the following errors
    error_lines = [i for i, line in enumerate(lines) if _ERROR_LINE.search(line)]
    for before, index, after in zip([-1, *error_lines], error_lines, [*error_lines[1:], len(lines)], strict=False):
        error, context = lines[index], lines[before + 1 : index]
        if any("In instantiation of" in line or "In function" in line for line in context):
            required = ""
        required = next((p for line in context if (p := _user_location(_REQUIRED.match(line), name))), required)
        if _user_location(_LOCATION.match(error), name):
            errors.append((error, True))
            continue
        notes = (line for line in lines[index + 1 : after] if ": note: " in line)
        note = next((line for line in notes if _user_location(_LOCATION.match(line), name)), "")
        blamed = _user_location(_LOCATION.match(note), name) or required
        errors.append((_relocate(error, blamed, note) if blamed else error, bool(blamed)))
    return errors


def _relocate(error: str, location: str, note: str) -> str:
    """Rewrite `header.h:82:43: error: text` as `mine.cu:3: error: text`, with the macro that the line expands."""
    macro = _MACRO.search(note)
    return f"{location}: {_LOCATION.sub('', error)}{f' (in macro {macro[1]})' if macro else ''}"


def _user_location(match: re.Match[str] | None, name: str) -> str:
    """`file:line` if the file belongs to the user, else an empty string."""
    if match is None:
        return ""
    path, folder = Path(match[1]), Path(name).parent.absolute()
    is_own = match[1] == name or (path.absolute().is_relative_to(folder) and path.is_file())
    return f"{match[1]}:{match[2]}" if is_own else ""
