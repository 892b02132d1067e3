"""Writes docs/verbs/*.md from the command line's own help, and docs/api.md from the docstrings of the public names.

python docs/generate_reference.py            write both
python docs/generate_reference.py --check    exit 1 where a page is out of date
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import typer

from kernelwright.cli.app import app

DOCS = Path(__file__).parent
PUBLIC = {
    "kernelwright": "The top-level names; torch is imported when one is used.",
    "kernelwright.commands": "One function for each verb: for notebooks, services and agents.",
    "kernelwright.kernels": "The kernel library: operators for torch programs.",
    "kernelwright.models.patching": "Kernels of the library inside transformers models.",
    "kernelwright.layouts": "The layout algebra of CuTe in plain Python.",
}
NOTE = "<!-- written by docs/generate_reference.py; edit the source, not this page -->"


def pages() -> dict[Path, str]:
    """Every generated page with its text."""
    root = typer.main.get_command(app)
    commands: dict[str, Any] = root.commands  # type: ignore[attr-defined]
    found = {DOCS / "verbs" / f"{name}.md": _verb_page(f"kw {name}", one) for name, one in commands.items()}
    rows = [f"| [`kw {name}`]({name}.md) | {_summary(one)} |" for name, one in commands.items()]
    index = ["# The verbs of kw", NOTE, "", "| verb | question it answers |", "|---|---|", *rows]
    found[DOCS / "verbs" / "README.md"] = "\n".join(index) + "\n"
    found[DOCS / "api.md"] = _api_page()
    return found


def _verb_page(path: str, command: Any) -> str:
    lines = [f"# {path}", NOTE, "", *_command_lines(path, command)]
    for name, one in getattr(command, "commands", {}).items():
        lines += [f"## {path} {name}", "", *_command_lines(f"{path} {name}", one)]
    return "\n".join(lines).rstrip() + "\n"


def _command_lines(path: str, command: Any) -> list[str]:
    if hasattr(command, "commands"):
        return [command.help or "", ""]
    text, *examples = [part.strip() for part in (command.help or "").split("Example:")]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    words = " ".join(_argument_text(one) for one in arguments)
    lines = [" ".join(text.split()), "", "```console", f"$ {path}{f' {words}' * bool(words)} [OPTIONS]", "```", ""]
    if examples:
        lines += ["Examples:", "", "```console", *(f"$ {' '.join(one.split())}" for one in examples), "```", ""]
    rows = [f"| `{_argument_text(one)}` | {one.help or ''} | |" for one in arguments]
    rows += [_option_row(one) for one in options if not one.hidden]
    return [*lines, "| argument or option | meaning | default |", "|---|---|---|", *rows, ""]


def _argument_text(argument: Any) -> str:
    name = str(argument.name).upper() + "..." * (argument.nargs == -1)
    return name if argument.required else f"[{name}]"


def _option_row(option: Any) -> str:
    names = ", ".join(f"`{one}`" for one in (*option.opts, *option.secondary_opts))
    kind = getattr(option.type_descriptor.annotation, "__name__", "str")
    value = "" if option.is_flag else f" `{option.metavar or kind.upper()}`".replace("|", "\\|")
    default = option.default
    shown = "" if default in (None, "", False) or callable(default) else f"`{default}`"
    shown = "on" if default is True else shown
    return f"| {names}{value} | {(option.help or '').replace('|', chr(92) + '|')} | {shown} |"


def _summary(command: Any) -> str:
    return " ".join((command.help or "").split("Example:")[0].split()).partition(". ")[0].partition("? ")[0] + (
        "?" if "?" in (command.help or "").split("Example:")[0] else ""
    )


def _api_page() -> str:
    lines = ["# API reference", NOTE, ""]
    for module_name, about in PUBLIC.items():
        module = importlib.import_module(module_name)
        lines += [f"## {module_name}", "", about, ""]
        for name in sorted(module.__all__, key=str.lower):
            value = getattr(module, name)
            if inspect.ismodule(value) or not callable(value):
                continue
            lines += [f"### {name}", "", *_signature(name, value), *_doc_lines(value), ""]
    return "\n".join(lines).rstrip() + "\n"


def _signature(name: str, value: Any) -> list[str]:
    """The call as Python would write it, one parameter a line where it is long; nothing for a class."""
    if inspect.isclass(value):
        return []
    signature = inspect.signature(value)
    parameters, star = [], False
    for one in signature.parameters.values():
        star |= one.kind is one.VAR_POSITIONAL
        if one.kind is one.KEYWORD_ONLY and not star:
            parameters.append("*")
            star = True
        prefix = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        annotation = (
            "" if one.annotation is one.empty else f": {inspect.formatannotation(one.annotation)}".replace("'", "")
        )
        parameters.append(
            f"{prefix}{one.name}{annotation}" + ("" if one.default is one.empty else f" = {one.default!r}")
        )
    result = inspect.formatannotation(signature.return_annotation).replace("'", "")
    line = f"{name}({', '.join(parameters)}) -> {result}"
    if len(line) > 100:
        line = f"{name}(\n    " + ",\n    ".join(parameters) + f",\n) -> {result}"
    return ["```python", line, "```", ""]


def _annotation_text(annotation: Any) -> str:
    return inspect.formatannotation(annotation).replace("'", "")


def _doc_lines(value: Any) -> list[str]:
    text = inspect.getdoc(value) or ""
    head, *rest = text.split("\n")
    indented = [line for line in rest if line.strip()]
    return [head, "", "```text", *rest_block(rest), "```"] if indented else [head]


def rest_block(lines: list[str]) -> list[str]:
    """The lines of a docstring after its first, without empty lines at either end."""
    while lines and not lines[0].strip():
        lines = lines[1:]
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def main(check: bool) -> int:
    """Writes the pages, or with `check` lists those that differ."""
    stale = [path for path, text in pages().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        print(f"{'out of date' if check else 'written'}: {path.relative_to(DOCS.parent)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages()[path], "utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
