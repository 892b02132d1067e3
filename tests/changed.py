"""The test files that a change can reach: `python tests/changed.py [BASE]` prints them, and on stderr why.

A change is what differs from BASE, by default the merge base with origin/main, or else HEAD~1, and what is not
committed yet. A test file is reached where a changed Python file is among its imports, direct or indirect; of other
files, those under src/kernelwright/PACKAGE reach tests/PACKAGE, and the rest the tests that mention their name or
their folder.
"""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, TESTS = ROOT / "src" / "kernelwright", ROOT / "tests"
DATA = PACKAGE / "redteam" / "samples"
"""Python files that are read and never imported."""
EVERY_TEST = {"tests/conftest.py", "tests/tiers.py", "pyproject.toml", "constraints.txt"}
COMMAND_LINE = re.compile(r'"-m",\s*"kernelwright"|-m kernelwright |def \w+\((.*, )?kw[,)]')
"""What runs `kw` in a process, or takes the fixture that does."""
RUN_TESTS = re.compile(r'\.glob\("(test_[^"]+)"\)')
"""The tests that a test runs in a process of its own."""
READS_EVERY_SOURCE = TESTS / "test_architecture.py"
NOT_FOLLOWED = {PACKAGE / "__init__.py", PACKAGE / "cli" / "app.py"}
"""They import everything, each name and each verb where it is used."""


def main(base=""):
    changed = changed_files(base or default_base())
    reasons = {test: reason for test in test_files() if (reason := reached(test, changed))}
    print(f"{len(changed)} files changed, {len(reasons)} of {len(test_files())} test files selected", file=sys.stderr)
    for test, reason in reasons.items():
        print(f"  {test.relative_to(ROOT)}: {reason}", file=sys.stderr)
        print(test.relative_to(ROOT))


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def default_base():
    merged = git("merge-base", "HEAD", "origin/main")
    return merged if merged and merged != git("rev-parse", "HEAD") else "HEAD~1"


def changed_files(base):
    """Paths relative to the root: committed since, not committed, and not known to git."""
    listed = git("diff", "--name-only", "--no-renames", base), git("ls-files", "--others", "--exclude-standard")
    return sorted({line for text in listed for line in text.splitlines()})


@functools.cache
def test_files():
    return sorted(TESTS.rglob("test_*.py"))


def reached(test, changed):
    """The first changed file for which a test file is selected; nothing where none is."""
    needed = closure(test)
    return next((one for one in changed if one in EVERY_TEST or is_needed(ROOT / one, test, needed)), "")


def is_needed(path, test, needed):
    if path.suffix == ".py" and not path.is_relative_to(DATA) and path.is_relative_to(ROOT / "src"):
        return path in needed or test == READS_EVERY_SOURCE
    if path.is_relative_to(PACKAGE):
        package = path.relative_to(PACKAGE).parts[0]
        return test.relative_to(TESTS).parts[0] == package or f'"{package}"' in text_of(test)
    if path.is_relative_to(TESTS):
        beside = path.suffix != ".py" and test.is_relative_to(path.parent)
        return path in needed or beside or (path.name == "conftest.py" and test.is_relative_to(path.parent))
    folder = path.relative_to(ROOT).parts[0]
    return path.name in text_of(test) or f'"{folder}"' in text_of(test) or f"{folder}/" in text_of(test)


def closure(path):
    """A file and every file of this repository that it imports, directly or through others."""
    todo, seen = [path], set()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += () if one in NOT_FOLLOWED else imported(one)
    return seen


@functools.cache
def imported(path):
    """The files that a file imports, lazily too; those that a test names in text, and of `kw` the verbs."""
    try:
        nodes = list(ast.walk(ast.parse(text_of(path))))
    except SyntaxError:
        return ()
    names, aliases = set(), set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
            aliases |= {alias.asname or alias.name for alias in node.names if alias.name == "kernelwright"}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            names |= {public(alias.name) for alias in node.names if node.module == "kernelwright"}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            names.add(public(node.attr))
    if path.is_relative_to(TESTS):
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        names |= {name for text in texts for name in re.findall(r"kernelwright(?:\.\w+)+", text)}
        if COMMAND_LINE.search(text_of(path)):
            verbs = {text.replace("-", "_") for text in texts} & {verb.stem for verb in (PACKAGE / "cli").glob("*.py")}
            names |= {"kernelwright.cli.app", *(f"kernelwright.cli.{verb}" for verb in verbs)}
    run = {one for pattern in RUN_TESTS.findall(text_of(path)) for one in path.parent.glob(pattern)}
    return tuple(sorted(run | {file for name in names for file in files_of(name, path.parent)}))


@functools.cache
def public(name):
    """The module that a public name of the package stands for."""
    tree = ast.parse(text_of(PACKAGE / "__init__.py"))
    homes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return next((node.module for node in homes if name in {alias.name for alias in node.names}), f"kernelwright.{name}")


def files_of(name, folder):
    """The files of a module or package and of the packages around it, of this package or beside the file."""
    parts = name.split(".")
    roots = [PACKAGE.parent] if parts[0] == "kernelwright" else [folder, TESTS, *TESTS.glob("*/")]
    for root in roots:
        places = [root.joinpath(*parts[: n + 1]) for n in range(len(parts))]
        found = [one for at in places for one in (at.with_suffix(".py"), at / "__init__.py") if one.is_file()]
        if found:
            return found
    return []


@functools.cache
def text_of(path):
    return path.read_text(encoding="utf-8", errors="replace")


if __name__ == "__main__":
    main(*sys.argv[1:])
