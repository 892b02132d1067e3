"""A file with cuDNN's fastest algorithms sets the flag of torch during a call, and leaves it as it was."""

import ast
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import module_of

from kernelwright.compiler.assembly.channels_last_layer import ChannelsLastLayer
from kernelwright.compiler.assembly.cuda_graph_layer import CudaGraphLayer
from kernelwright.compiler.assembly.cudnn_benchmark_layer import CudnnBenchmarkLayer
from kernelwright.compiler.assembly.output_file import assemble_file
from kernelwright.problems import load_problem

MODEL = """import torch
from torch import nn

SEEN = []


class Model(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.convolution = nn.Conv2d(3, channels, 3)

    def forward(self, x, *, scale=2.0, fail=False):
        SEEN.append(torch.backends.cudnn.benchmark)
        if fail:
            raise ValueError("as asked")
        return self.convolution(x) * scale


def get_inputs():
    return [torch.randn(2, 3, 9, 8)]


def get_init_inputs():
    return [6]
"""
FUNCTION = """import torch

SEEN = []


def work(x, weight):
    SEEN.append(torch.backends.cudnn.benchmark)
    return torch.nn.functional.conv2d(x, weight)


def get_inputs():
    return [torch.randn(2, 3, 9, 8), torch.randn(6, 3, 3, 3)]
"""


def text_from(folder, text, name="", layers=()):
    path = folder / "problem.py"
    path.write_text(text)
    problem = load_problem(f"{path}:{name}" if name else str(path))
    return assemble_file(problem, layers or [CudnnBenchmarkLayer()], "A test.")


@pytest.fixture
def pair(tmp_path):
    """A model and its new one with the same weights, and what each call saw of the flag."""
    made = module_of(text_from(tmp_path, MODEL))
    old, new = made.Model(6), made.ModelNew(6)
    assert not new.load_state_dict(old.state_dict()).missing_keys
    made.SEEN.clear()
    return old, new, made.SEEN


@pytest.fixture(params=[False, True])
def flag(request, monkeypatch):
    """The flag as the caller has set it."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", request.param)
    return request.param


X = torch.randn(2, 3, 9, 8)


def test_the_flag_is_set_during_a_call_and_then_as_it_was(pair, flag):
    old, new, seen = pair
    torch.testing.assert_close(new(X), old(X))
    assert seen == [True, flag]
    assert torch.backends.cudnn.benchmark is flag


def test_the_flag_is_as_it_was_after_a_call_that_raises(pair, flag):
    _, new, seen = pair
    with pytest.raises(ValueError, match="as asked"):
        new(X, fail=True)
    assert seen == [True]
    assert torch.backends.cudnn.benchmark is flag


def test_making_a_model_does_not_set_the_flag(tmp_path, flag):
    module_of(text_from(tmp_path, MODEL)).ModelNew(6)
    assert torch.backends.cudnn.benchmark is flag


def test_arguments_of_every_kind_are_passed_on(pair):
    old, new, _ = pair
    for args, kwargs in [((X,), {}), ((X,), {"scale": 3.0}), ((), {"x": X, "scale": 0.5})]:
        torch.testing.assert_close(new(*args, **kwargs), old(*args, **kwargs))


def test_gradients_are_those_of_the_original(pair):
    old, new, _ = pair
    for model in (old, new):
        model(X).square().sum().backward()
    torch.testing.assert_close(new.convolution.weight.grad, old.convolution.weight.grad)


def test_a_function_is_called_as_one(tmp_path, flag, monkeypatch):
    made = module_of(text_from(tmp_path, FUNCTION, "work"))
    monkeypatch.setattr(torch.nn.Module, "_call_impl", None)
    new, weight = made.ModelNew(), torch.randn(6, 3, 3, 3)
    made.SEEN.clear()
    torch.testing.assert_close(new(X, weight), made.work(X, weight))
    assert [True, flag] == made.SEEN
    assert torch.backends.cudnn.benchmark is flag


def test_the_flag_is_set_between_other_layers_too(tmp_path, flag):
    made = module_of(text_from(tmp_path, MODEL, "", [ChannelsLastLayer(), CudnnBenchmarkLayer(), CudaGraphLayer()]))
    old, new = made.Model(6), made.ModelNew(6)
    new.load_state_dict(old.state_dict())
    made.SEEN.clear()
    with torch.no_grad():
        torch.testing.assert_close(new(X), old(X))
    assert [True, flag] == made.SEEN
    assert torch.backends.cudnn.benchmark is flag


def test_torch_compile_of_a_file_sees_the_whole_program(tmp_path, flag):
    text = FUNCTION.replace("    SEEN.append(torch.backends.cudnn.benchmark)\n", "")
    made = module_of(text_from(tmp_path, text, "work"))
    weight = torch.randn(6, 3, 3, 3)
    torch._dynamo.reset()
    compiled = torch.compile(made.ModelNew(), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X, weight), made.work(X, weight))
    assert torch.backends.cudnn.benchmark is flag


def test_the_text_is_python_that_needs_nothing_but_torch(tmp_path):
    text = text_from(tmp_path, MODEL)
    tree = ast.parse(text)
    imported = {node.names[0].name for node in tree.body if isinstance(node, ast.Import)}
    assert imported == {"contextlib", "torch"}
    assert "kernelwright" not in text.lower()


@pytest.mark.parametrize(
    "name",
    [
        "x",
        "benchmark",
        "before",
    ],
)
def test_an_argument_may_have_any_name(tmp_path, name):
    text = FUNCTION.replace("(x, weight)", f"({name}, weight)").replace("conv2d(x", f"conv2d({name}")
    made = module_of(text_from(tmp_path, text, "work"))
    weight = torch.randn(6, 3, 3, 3)
    torch.testing.assert_close(made.ModelNew()(X, weight), made.work(X, weight))
