"""Candidates in Python: which object of a file is meant, and whose parameters it has."""

from __future__ import annotations

import textwrap

import pytest
import torch

from kernelwright.core.errors import CandidateError, MissingDependency, NotFoundError, SignatureError
from kernelwright.problems import Candidate, candidate_loaders, load_candidate, load_problem, register_loader
from kernelwright.problems.importing import absolute_target

PROBLEM = """
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.norm.weight.data.normal_()
            self.register_buffer("table", torch.arange(width, dtype=torch.float32))
            self.register_buffer("cache", torch.full((width,), 5.0), persistent=False)

        def forward(self, x, scale=1.0):
            return self.norm(x) * scale + self.table

    def get_init_inputs(): return [4]
    def get_inputs(): return ([torch.randn(3, 4)], {"scale": 2.0})
"""
STATELESS = """
    import torch
    def plus(x, y): return x + y
    def get_inputs(): return [torch.randn(3), torch.randn(3)]
"""


@pytest.fixture
def write(tmp_path):
    def write(source: str, name: str = "candidate.py") -> str:
        (tmp_path / name).write_text(textwrap.dedent(source))
        return str(tmp_path / name)

    return write


@pytest.fixture
def problem(write):
    return load_problem(write(PROBLEM, "layer.py"))


@pytest.fixture
def plus(write):
    return load_problem(write(STATELESS, "plus.py"))


def outputs(problem, candidate: Candidate):
    args, kwargs = problem.inputs("cpu", 3)
    with torch.no_grad():
        return problem.program(*args, **kwargs), candidate.program(*args, **kwargs)


NEW = """
    import torch
    from torch import nn

    class ModelNew(nn.Module):
        def __init__(self, width):
            super().__init__()
            torch.randn(100)
            self.norm = nn.LayerNorm(width)
            self.register_buffer("table", torch.zeros(width))
            self.register_buffer("cache", torch.zeros(width), persistent=False)

        def forward(self, x, scale):
            return torch.layer_norm(x, x.shape[-1:], self.norm.weight, self.norm.bias) * scale + self.table
"""


def test_parameters_and_buffers_are_copied_by_name(write, problem):
    candidate = load_candidate(write(NEW), problem)
    right, got = outputs(problem, candidate)
    torch.testing.assert_close(got, right)
    assert candidate.program.cache.tolist() == [5.0] * 4
    assert candidate.program.norm.weight.data_ptr() != problem.module.norm.weight.data_ptr()


def test_training_mode_is_the_references(write, problem):
    problem.module.eval()
    assert not load_candidate(write(NEW), problem).program.training


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("self.norm = nn.LayerNorm(width)", "self.layer = nn.LayerNorm(width)"), "missing norm.weight float32[4]"),
        (("self.norm = nn.LayerNorm(width)", "self.norm = nn.LayerNorm(2 * width)"),
         "norm.weight is float32[8], must be float32[4]"),
        (("torch.zeros(width))", "torch.zeros(width).double())"), "table is float64[4], must be float32[4]"),
        (("torch.randn(100)", "self.extra = nn.Parameter(torch.ones(2))"), "extra extra float32[2]"),
    ],
)  # fmt: skip
def test_other_parameters_are_listed(write, problem, change, says):
    with pytest.raises(SignatureError) as caught:
        load_candidate(write(NEW.replace(*change)), problem)
    assert says in caught.value.message
    assert caught.value.code == "wrong-parameters"


def test_every_wrong_parameter_is_listed(write, problem):
    source = NEW.replace("self.norm = nn.LayerNorm(width)", "self.layer = nn.LayerNorm(width)")
    with pytest.raises(SignatureError) as caught:
        load_candidate(write(source), problem)
    for name in ("missing norm.weight", "missing norm.bias", "extra layer.weight", "extra layer.bias"):
        assert name in caught.value.message


def test_a_function_receives_the_parameters_by_name(write, problem):
    source = """
        import torch
        def layer(x, norm_weight, norm_bias, table, *, scale):
            return torch.layer_norm(x, (4,), norm_weight, norm_bias) * scale + table
    """
    candidate = load_candidate(write(source), problem)
    right, got = outputs(problem, candidate)
    torch.testing.assert_close(got, right)
    assert list(candidate.program.state_dict()) == list(problem.module.state_dict())
    with torch.no_grad():
        candidate.program.get_parameter("norm.weight").zero_()
        assert not torch.equal(outputs(problem, candidate)[1], got)


def test_a_module_without_state_receives_them_too(write, problem):
    source = """
        import torch
        class ModelNew(torch.nn.Module):
            def __init__(self, width): super().__init__()
            def forward(self, x, scale, norm_weight, norm_bias, table):
                return torch.layer_norm(x, (4,), norm_weight, norm_bias) * scale + table
    """
    right, got = outputs(problem, load_candidate(write(source), problem))
    torch.testing.assert_close(got, right)


def test_a_stateless_candidate_must_take_every_parameter(write, problem):
    with pytest.raises(SignatureError, match=r"missing table float32\[4\], norm\.bias float32\[4\]"):
        load_candidate(write("def layer(x, norm_weight, scale): return x\n"), problem)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def plus(x, y): return x + y", ""),
        ("def candidate(x, y): return x + y", ""),
        ("def other(x, y): return x + y", ":other"),
        ("class ModelNew:\n    def __call__(self, x, y): return x + y", ""),
        ("from operator import add as plus", ""),
    ],
)
def test_which_object_is_meant(write, plus, source, name):
    right, got = outputs(plus, load_candidate(write(source + "\n") + name, plus))
    assert torch.equal(right, got)


@pytest.mark.parametrize(
    "source", ["def plus(x): return x", "def plus(x, y, z): return x", "def plus(*, x, y): return x"]
)
def test_another_signature_is_found_before_it_runs(write, plus, source):
    with pytest.raises(SignatureError, match=r"float32\[3\], float32\[3\]"):
        load_candidate(write(source + "\n"), plus)


def test_another_constructor_is_named(write, problem):
    with pytest.raises(SignatureError, match=r"constructed with 4"):
        load_candidate(write(NEW.replace("__init__(self, width)", "__init__(self)")), problem)


def test_nothing_that_fits(write, plus):
    with pytest.raises(CandidateError, match="it defines Model, helper") as caught:
        load_candidate(write("class Model: pass\ndef helper(): pass\n"), plus)
    assert "rename Model to ModelNew" in caught.value.next


def test_missing_file(tmp_path, write, plus):
    write("", "candidate.py")
    with pytest.raises(NotFoundError) as caught:
        load_candidate(str(tmp_path / "candidat.py"), plus)
    assert "candidate.py" in caught.value.next


def test_what_is_not_there_is_missed_before_anything_runs(tmp_path, write, monkeypatch):
    """Not by the worker, in whose scratch folder a relative path would be looked for."""
    monkeypatch.chdir(tmp_path)
    write("", "candidate.py")
    assert absolute_target("candidate.py:own") == f"{tmp_path / 'candidate.py'}:own"
    assert absolute_target("package.module:own") == "package.module:own"
    for target in ("candidat.py", "candidat.py:own"):
        with pytest.raises(NotFoundError, match=r"no file candidat\.py") as caught:
            absolute_target(target)
        assert caught.value.where == str(tmp_path) and "candidate.py" in caught.value.next


def test_a_file_that_does_not_import_names_its_line(write, plus):
    path = write("import torch\ntorch.no_such_name\n")
    with pytest.raises(CandidateError, match="no_such_name") as caught:
        load_candidate(path, plus)
    assert caught.value.where == f"{path}:2"


def test_a_constructor_that_raises_names_its_line(write, plus):
    path = write("class ModelNew:\n    def __init__(self):\n        raise RuntimeError('broken')\n")
    with pytest.raises(CandidateError, match="broken") as caught:
        load_candidate(path, plus)
    assert caught.value.where == f"{path}:3"


def test_a_missing_extra_prints_the_install_line(write, plus):
    path = write("raise ModuleNotFoundError('no triton', name='triton')\n")
    with pytest.raises(MissingDependency, match="needs triton") as caught:
        load_candidate(path, plus)
    assert "pip install" in caught.value.next


def test_unknown_suffix_lists_the_known(write, plus):
    with pytest.raises(CandidateError, match=r"candidates end in \.py, \.cpp"):
        load_candidate(write("", "kernel.rs"), plus)


def test_a_language_is_added_by_one_registration(write, plus, monkeypatch):
    class Loader:
        def load(self, path, name, problem, device):
            return Candidate(path.stem, lambda x, y: x + y, str(path), "rust")

    monkeypatch.setattr(candidate_loaders, "SOURCE_LOADERS", dict(candidate_loaders.SOURCE_LOADERS))
    register_loader(".rs", Loader())
    assert load_candidate(write("", "kernel.rs"), plus).language == "rust"
