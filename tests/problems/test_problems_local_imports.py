"""Files beside a problem and beside a candidate, in two folders that know nothing of each other."""

from __future__ import annotations

import inspect
import pickle
import sys

import pytest
import torch

from kernelwright.core.errors import CandidateError
from kernelwright.problems import load_candidate, load_problem

PROBLEM = """
import torch
from ops import scaled
def problem(x): return scaled(x)
def get_inputs(): return [torch.ones(4)]
"""
OPS = """
import torch
class Scale:
    factor = {factor}
def scaled(x): return x * Scale.factor
"""


@pytest.fixture
def folders(tmp_path):
    """A problem whose `ops.py` doubles, and a candidate in another folder whose `ops.py` triples."""

    def write(candidate: str, **beside: str):
        files = {"p/problem.py": PROBLEM, "p/ops.py": OPS.format(factor=2), "c/ops.py": OPS.format(factor=3)}
        files |= {"c/candidate.py": candidate} | {f"c/{name}.py": text for name, text in beside.items()}
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        problem = load_problem(str(tmp_path / "p/problem.py"))
        return problem, load_candidate(str(tmp_path / "c/candidate.py"), problem)

    return write


def results(problem, candidate):
    x = torch.ones(4)
    return problem.program(x)[0].item(), candidate.program(x)[0].item()


@pytest.mark.parametrize(
    "candidate",
    [
        "from ops import scaled\ndef candidate(x): return scaled(x)",
        "import ops\ndef candidate(x): return ops.scaled(x)",
        "import ops as mine\ndef candidate(x): return mine.scaled(x)",
        "def candidate(x):\n    import ops\n    return ops.scaled(x)",
        "def candidate(x):\n    from ops import scaled\n    return scaled(x)",
        "import importlib\nops = importlib.import_module('ops')\ndef candidate(x): return ops.scaled(x)",
    ],
)
def test_each_folder_has_its_own_module_of_a_name(folders, candidate):
    assert results(*folders(candidate)) == (2, 3)


def test_a_file_beside_imports_its_own_neighbours_when_it_is_called(folders, tmp_path, monkeypatch):
    lazy = "def late(x):\n    import deep.inner\n    return deep.inner.scaled(x)"
    inner = "from ops import scaled\nfrom . import name\nassert name == 'deep'"
    pair = folders(
        "import lazy\ndef candidate(x): return lazy.late(x)",
        **{"lazy": lazy, "deep/inner": inner, "deep/__init__": "name = 'deep'"},
    )
    monkeypatch.chdir(tmp_path)
    assert results(*pair) == (2, 3)


def test_a_folder_leaves_nothing_behind_under_a_plain_name(folders):
    folders("def candidate(x): return x")
    before, finders = list(sys.path), list(sys.meta_path)
    folders("import importlib\nimportlib.import_module('ops')\nimport ops\ndef candidate(x): return x")
    assert "ops" not in sys.modules
    assert sys.path == before
    assert sys.meta_path == finders


@pytest.mark.parametrize("colorsys", ["import colorsys", "colorsys = importlib.import_module('colorsys')"])
def test_pythons_own_modules_and_loaded_ones_win_over_files_beside(folders, monkeypatch, colorsys):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    folders(
        f"import importlib, torch, random\n{colorsys}\nassert random.random() < 1\nassert colorsys.rgb_to_hsv\n"
        "def candidate(x): return torch.relu(x)",
        torch="raise AssertionError",
        random="raise AssertionError",
        colorsys="raise AssertionError",
    )


def test_what_lies_beside_is_found_by_its_modules_name(folders):
    _, candidate = folders("from ops import Scale, scaled\ndef candidate(x): return scaled(x)")
    scale = candidate.program.__globals__["Scale"]
    assert pickle.loads(pickle.dumps(scale)) is scale
    assert "factor = 3" in inspect.getsource(scale)
    assert vars(inspect.getmodule(candidate.program.__globals__["scaled"]))["Scale"] is scale


@pytest.mark.parametrize("lazy", [False, True])
def test_compiled_candidates_find_the_files_beside(folders, lazy):
    late = "def scaled(x):\n    from ops import scaled\n    return scaled(x)" if lazy else "from ops import scaled"
    pair = folders(
        f"import torch\n{late}\n@torch.compile(backend='eager', fullgraph={not lazy})\n"
        "def candidate(x): return scaled(x) + len(x) - 4"
    )
    assert results(*pair) == (2, 3)


def test_a_module_that_is_nowhere_is_named(folders):
    with pytest.raises(CandidateError, match="No module named 'nowhere'") as caught:
        folders("import nowhere\ndef candidate(x): return x")
    assert caught.value.where.endswith("candidate.py:1")


def test_a_fault_in_a_file_beside_is_told_by_the_line_that_imports_it(folders):
    with pytest.raises(CandidateError, match="ZeroDivisionError") as caught:
        folders("import broken\ndef candidate(x): return x", broken="1 / 0")
    assert caught.value.where.endswith("candidate.py:1")
