"""The house as docs/architecture.md states it, held against the imports."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "kernelwright"
FLOORS = {
    name: int(floor)
    for name, floor in re.findall(
        r"^\| `(\w+)` \| (\d) \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE
    )
}
STRANGERS = PACKAGE / "judge" / "samples"
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE and not p.is_relative_to(STRANGERS))


def imports_of(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            names |= {node.module or ""}
            if node.module == "kernelwright":
                names |= {f"kernelwright.{alias.name}" for alias in node.names}
    return names


def test_the_table_names_every_room_that_exists():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms <= FLOORS.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_floors_below_it(path):
    room = path.relative_to(PACKAGE).parts[0]
    for name in imports_of(path):
        parts = name.split(".")
        if parts[0] == "kernelwright" and len(parts) > 1 and parts[1] != room:
            assert FLOORS[parts[1]] < FLOORS[room], f"{room} (floor {FLOORS[room]}) imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_measure_reads_a_clock(path):
    room = path.relative_to(PACKAGE).parts[0]
    if room in ("measure", "sandbox"):
        return
    assert not imports_of(path) & {"time", "timeit"}, "clocks belong to measure/"


def test_importing_the_package_touches_no_torch():
    look = "print([m for m in ('torch', 'numpy', 'triton') if m in sys.modules])"
    code = f"import sys, kernelwright, kernelwright.cli.app; {look}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_reachable():
    import kernelwright

    without_triton = {"patch", "unpatch"} if find_spec("triton") is None else set()
    for name in set(kernelwright.__all__) - without_triton:
        assert getattr(kernelwright, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        kernelwright.nothing


@pytest.mark.parametrize("path", [*PACKAGE.glob("*.py"), *MODULES], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_says_what_it_is_for(path):
    if path.name != "__main__.py":
        assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
