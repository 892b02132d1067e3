"""The layers of docs/architecture.md, checked against the imports of every module."""

import ast
import functools
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "kernelwright"
LAYERS = {
    name: int(layer)
    for name, layer in re.findall(
        r"^\| `(\w+)` \| (\d+) \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE
    )
}
SAMPLES = PACKAGE / "redteam" / "samples"
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE and not p.is_relative_to(SAMPLES))
PARTS = {path: path.relative_to(PACKAGE).parts for path in MODULES}


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


@functools.cache
def imports() -> dict[Path, set[str]]:
    return {path: imports_of(path) for path in MODULES}


def test_the_table_names_every_package():
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} <= LAYERS.keys()


def test_a_package_imports_only_layers_below_it():
    wrong = []
    for path, (own, *_) in PARTS.items():
        imported = {name.split(".")[1] for name in imports()[path] if name.startswith("kernelwright.")} - {own}
        wrong += [f"{path}: {own} imports {other}" for other in sorted(imported) if LAYERS[other] >= LAYERS[own]]
    assert not wrong, "\n".join(wrong)


def test_only_measure_and_sandbox_read_a_clock():
    wrong = [path for path, (own, *_) in PARTS.items() if own not in ("measure", "sandbox")]
    wrong = [path for path in wrong if imports()[path] & {"time", "timeit"}]
    assert not wrong, f"clocks belong to measure: {wrong}"


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


def test_every_module_has_a_docstring():
    wrong = [path for path in [*PACKAGE.glob("*.py"), *MODULES] if path.name != "__main__.py"]
    wrong = [path for path in wrong if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not wrong, f"modules without a docstring: {wrong}"
