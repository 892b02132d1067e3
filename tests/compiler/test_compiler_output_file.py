"""Layers of classes on the original program: the last one is `ModelNew`, and each passes every argument on."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import module_of

from kernelwright.compiler.assembly.channels_last_layer import ChannelsLastLayer
from kernelwright.compiler.assembly.cuda_graph_layer import CudaGraphLayer
from kernelwright.compiler.assembly.output_file import CompiledLayer, OriginalLayer, assemble_file, plain_signature
from kernelwright.core.errors import ProblemError
from kernelwright.problems import Problem, load_problem

MODULE = '''"""A problem's own words."""

from __future__ import annotations

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((8,), 0.5))

    def forward(self, x: torch.Tensor, *others: torch.Tensor, power: int = 2, **named: float) -> torch.Tensor:
        return sum([x, *others]) * self.scale**power + sum(named.values())


def get_inputs():
    return [torch.randn(9, 8)]


def get_init_inputs():
    return []
'''
FUNCTION = """import torch


def work(x, /, y, *others, power=2, **named):
    return sum([x, y, *others]) ** power + sum(named.values())


def get_inputs():
    return [torch.randn(9, 8), torch.randn(8)]
"""
LAYERS = {
    "nothing": [],
    "original": [OriginalLayer()],
    "compiled": [CompiledLayer()],
    "compiled, tuned": [CompiledLayer(mode="max-autotune-no-cudagraphs")],
    "channels-last": [ChannelsLastLayer()],
    "graph": [CudaGraphLayer()],
    "compiled, graph": [CompiledLayer(), CudaGraphLayer()],
    "compiled, channels-last, graph": [CompiledLayer(), ChannelsLastLayer(), CudaGraphLayer()],
}


@pytest.fixture(autouse=True)
def built_with_cuda(monkeypatch):
    """As in a torch that knows CUDA, on a machine without a device."""
    if not torch.backends.cuda.is_built():
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


@pytest.fixture
def problems(tmp_path):
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "function.py").write_text(FUNCTION)
    return {
        "module": load_problem(str(tmp_path / "module.py")),
        "function": load_problem(f"{tmp_path / 'function.py'}:work"),
    }


@pytest.fixture
def compiled(monkeypatch):
    """What torch.compile was asked for; it compiles nothing."""
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function, **given: asked.append((function, given)) or function)
    return asked


def classes_of(text):
    """From the first line of the classes on."""
    return text.partition("# ---- optimised program\n\n")[2]


@pytest.mark.parametrize("layers", [[], [OriginalLayer()]], ids=["nothing", "original"])
def test_the_original_program_is_a_file(problems, layers):
    text = assemble_file(problems["module"], layers, "A test.")
    assert text.startswith('"""A test."""\n\nfrom __future__ import annotations\n')
    assert text.count("__future__") == 1
    compile(text, "problem_optimized.py", "exec")
    assert "A problem's own words" not in text
    assert classes_of(text) == 'class ModelNew(Model):\n    """The original Model: nothing was faster."""\n'
    text = assemble_file(problems["function"], layers, "A test.")
    assert classes_of(text) == (
        'class ModelNew(torch.nn.Module):\n    """The original work: nothing was faster."""\n\n'
        "    forward = staticmethod(work)\n\n    __call__ = forward\n"
    )


def test_a_compiled_program_is_a_file(problems, compiled):
    text = assemble_file(problems["module"], [CompiledLayer()], "A test.")
    assert "    forward = torch.compile(Model.forward, dynamic=False)\n" in classes_of(text)
    made = module_of(text)
    assert compiled == [(made.Model.forward, {"dynamic": False})]
    text = assemble_file(problems["function"], [CompiledLayer()], "A test.")
    assert "    forward = staticmethod(torch.compile(work, dynamic=False))\n\n    __call__ = forward" in text
    made = module_of(text)
    assert compiled[1:] == [(made.work, {"dynamic": False})]


def test_a_layer_is_named_and_the_last_one_is_the_model(problems):
    layers = [CompiledLayer(), ChannelsLastLayer(), CudaGraphLayer()]
    text = classes_of(assemble_file(problems["module"], layers, "A test."))
    lines = [line for line in text.splitlines() if line.startswith("class ")]
    assert lines == ["class Compiled(Model):", "class ChannelsLast(Compiled):", "class ModelNew(ChannelsLast):"]


@pytest.mark.parametrize("way", LAYERS)
@pytest.mark.parametrize("grad", [False, True])
def test_every_kind_of_argument_is_passed_on_to_a_module(problems, compiled, way, grad):
    made = module_of(assemble_file(problems["module"], LAYERS[way], "A test."))
    old, new, x = made.Model(), made.ModelNew(), torch.randn(9, 8)
    calls = [((x,), {}), ((x, x + 1, x + 2), {}), ((x, x + 1), {"power": 3, "bias": 0.5, "other": 2.0}), ((), {"x": x})]
    with torch.set_grad_enabled(grad):
        for args, kwargs in calls:
            torch.testing.assert_close(new(*args, **kwargs), old(*args, **kwargs))


@pytest.mark.parametrize("way", LAYERS)
@pytest.mark.parametrize("grad", [False, True])
def test_every_kind_of_argument_is_passed_on_to_a_function(problems, compiled, way, grad):
    made = module_of(assemble_file(problems["function"], LAYERS[way], "A test."))
    new, x, y = made.ModelNew(), torch.randn(9, 8), torch.randn(8)
    calls = [((x, y), {}), ((x, y, x + 1), {"power": 3, "bias": 0.5}), ((x,), {"y": y})]
    with torch.set_grad_enabled(grad):
        for args, kwargs in calls:
            torch.testing.assert_close(new(*args, **kwargs), made.work(*args, **kwargs))


@pytest.mark.parametrize("way", LAYERS)
def test_a_program_may_use_the_names_of_layers(tmp_path, compiled, way):
    head = "def Replay(values):\n    return sum(values)\n\n\nto_channels_last = Compiled = REPLAYS = None\n\n\n"
    text = FUNCTION.replace("return sum(", "return Replay(").replace("def work", f"{head}def work")
    path = tmp_path / "problem.py"
    path.write_text(text)
    made = module_of(assemble_file(load_problem(f"{path}:work"), LAYERS[way], "A test."))
    x, y = torch.randn(9, 8), torch.randn(8)
    torch.testing.assert_close(made.ModelNew()(x, y, bias=1.0), (x + y) ** 2 + 1.0)
    assert made.Compiled is None


def test_a_model_in_memory_is_given_by_the_loader():
    text = assemble_file(Problem.from_callable(torch.nn.Linear(3, 3), torch.ones(3)), [CompiledLayer()], "A test.")
    assert "class ModelNew(Model):" in text
    assert "Linear" not in text


CPU = torch.device("cpu")


def test_a_default_that_is_no_literal_cannot_be_written():
    def work(x, y=CPU, axes=(0, [1]), dtype=torch.float32):
        return x.to(y).sum(axes, dtype=dtype)

    with pytest.raises(ProblemError, match="default of argument y"):
        plain_signature(Problem.from_callable(work, torch.ones(3)))
