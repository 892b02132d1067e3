"""Writes the tables of modules in docs/architecture.md from the modules' docstrings.

python docs/generate_modules.py            write them
python docs/generate_modules.py --check    exit 1 where the page is out of date
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "architecture.md"
PACKAGE = DOCS.parent / "src" / "kernelwright"
SAMPLES = PACKAGE / "redteam" / "samples"
START = "<!-- modules: written by docs/generate_modules.py; edit the docstrings, not these tables -->"
END = "<!-- end of modules -->"


def main(check: bool) -> int:
    """Writes the page, or with `check` reports whether it is out of date."""
    old = PAGE.read_text("utf-8")
    new = replace_tables(old)
    if new == old:
        return 0
    print(f"{'out of date' if check else 'written'}: {PAGE.relative_to(DOCS.parent)}")
    if not check:
        PAGE.write_text(new, "utf-8")
    return int(check)


def replace_tables(page: str) -> str:
    """The page with today's tables between the two markers.

    Raises:
        ValueError: a marker is missing or occurs twice.
    """
    if page.count(START) != 1 or page.count(END) != 1:
        raise ValueError(f"{PAGE} must contain each of these lines once:\n{START}\n{END}")
    before, _, rest = page.partition(START)
    return f"{before}{START}\n\n{module_tables()}\n{END}{rest.partition(END)[2]}"


def module_tables() -> str:
    """One section per package: the first sentence of its docstring, and a row for each module."""
    packages = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
    return "\n".join(_package_section(package) for package in packages)


def first_sentence(docstring: str) -> str:
    """The first sentence of a docstring on one line, without `|`, which would end a cell of the table."""
    paragraph = " ".join(docstring.strip().partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph, maxsplit=1)[0]
    return sentence.replace("|", "\\|")


def _package_section(package: Path) -> str:
    intro, *modules = sorted(
        (path for path in package.rglob("*.py") if not path.is_relative_to(SAMPLES)),
        key=lambda path: (path != package / "__init__.py", _module_name(path, package)),
    )
    rows = [f"| `{_module_name(path, package)}` | {_sentence_of(path)} |" for path in modules]
    return "\n".join([f"### {package.name}", _sentence_of(intro), "", "| module | purpose |", "|---|---|", *rows, ""])


def _module_name(path: Path, package: Path) -> str:
    """`budget` for a module of the package, `accuracy/budget` below it, `accuracy/` for the subpackage itself."""
    name = path.relative_to(package).with_suffix("").as_posix()
    return name.removesuffix("__init__")


def _sentence_of(path: Path) -> str:
    return first_sentence(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
