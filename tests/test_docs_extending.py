"""docs/extending.md names files and functions that exist, apart from those that its examples create."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "extending.md").read_text("utf-8")
EXAMPLES = re.compile(r"leaky_relu|expression|previous_answer|softmax_in_two_halves|unrolled|work\.py|NAME|NN_TITLE")
"""Parts of the paths and modules that the examples create."""
PATH = re.compile(r"`((?:src|tests|docs)/[\w/.]+)`")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
CREATED_MODULE = re.compile(r"kernelwright\.(kernels\.leaky_relu|problems\.expression|cli\.work|commands\.work)\b")


def test_every_path_exists():
    paths = [path for path in PATH.findall(TEXT) if not EXAMPLES.search(path)]
    assert len(paths) > 20
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def test_every_import_of_the_examples_resolves():
    pytest.importorskip("triton")
    missing = [
        f"{module}.{name}"
        for module, name in sorted(imported_names())
        if not is_module(f"{module}.{name}") and not hasattr(import_module(module), name)
    ]
    assert not missing


def imported_names() -> set[tuple[str, str]]:
    """Module and name of every import from this package; those of the examples' own modules are left out."""
    found = set()
    for block in BLOCK.findall(TEXT):
        try:
            tree = ast.parse(block)
        except SyntaxError:  # lines of a dict or a list
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kernelwright"):
                names = {(node.module or "", alias.name) for alias in node.names}
                found |= {one for one in names if not CREATED_MODULE.match(f"{one[0]}.{one[1]}")}
    assert len(found) > 20
    return found


def is_module(name: str) -> bool:
    path = ROOT / "src" / name.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()
