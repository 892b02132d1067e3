"""Recurrences on a GPU: near the FP64 result in every config, the same in every call, on two streams and in a graph."""

import pytest
import torch
from torch import nn

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.planning import plan_program
from kernelwright.compiler.reference import bind_placeholders, build_reference, record_region_inputs
from kernelwright.compiler.regions.call import CallRegion

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
REPEATS = 20
TOLERANCE = {torch.float32: 3e-6, torch.float16: 1e-2, torch.bfloat16: 6e-2}
"""Of the largest error; half precision is rounded in every step, as torch does."""
PROGRAMS = {
    "LSTM": (nn.LSTM, (128, 256), {"num_layers": 6, "batch_first": True}, (10, 512, 128)),
    "LSTM of one layer": (nn.LSTM, (128, 256), {}, (300, 32, 128)),
    "GRU": (nn.GRU, (128, 256), {"num_layers": 6}, (512, 10, 128)),
    "bidirectional GRU": (nn.GRU, (128, 256), {"num_layers": 3, "bidirectional": True}, (512, 10, 128)),
    "RNN": (nn.RNN, (100, 300), {"num_layers": 3, "nonlinearity": "tanh"}, (200, 7, 100)),
    "RNN with ReLU": (nn.RNN, (100, 64), {"num_layers": 2, "nonlinearity": "relu"}, (50, 7, 100)),
    "odd LSTM": (nn.LSTM, (37, 83), {"num_layers": 2, "bias": False, "bidirectional": True}, (65, 5, 37)),
    "large LSTM": (nn.LSTM, (64, 512), {"bidirectional": True}, (100, 16, 64)),
}


class Recurrent(nn.Module):
    def __init__(self, kind, sizes, options):
        super().__init__()
        self.recurrence = kind(*sizes, **options)

    def forward(self, x):
        return self.recurrence(x)


def kernels(name, dtype=torch.float32):
    """The inputs, the reference, and the function of each config."""
    kind, sizes, options, shape = PROGRAMS[name]
    program = Recurrent(kind, sizes, options).to("cuda", dtype)
    x = torch.randn(shape, device="cuda", dtype=dtype)
    with torch.no_grad():
        plan = plan_program(program, [x], {})
    (part,) = [part for part in plan.regions if isinstance(part.region, CallRegion)]
    values = bind_placeholders(plan.captured, program, [x], {})
    (inputs,) = record_region_inputs(plan.captured, [part], values)
    configs = TRITON.generate_configs(part.region)
    assert configs
    functions = {
        config: getattr(TRITON.load(TRITON.emit_module([RegionKernel(part.region, config)])), part.region.name)
        for config in configs
    }
    return [one.detach() for one in inputs], build_reference(plan.captured, part), functions


def check(name, dtype=torch.float32):
    inputs, reference, functions = kernels(name, dtype)
    with torch.no_grad():
        exact, torch_results = reference(*(one.double() for one in inputs)), reference(*inputs)
    for config, function in functions.items():
        got = function(*inputs)
        for one, right, of_torch in zip(got, exact, torch_results, strict=True):
            assert (one.shape, one.stride(), one.dtype) == (of_torch.shape, of_torch.stride(), of_torch.dtype), config
            assert (one.double() - right).abs().max() <= TOLERANCE[dtype], config
        for _ in range(REPEATS):
            assert all(map(torch.equal, function(*inputs), got)), f"{config}: differs between calls"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", PROGRAMS)
def test_fp32_recurrences_have_the_accuracy_of_fp32(name):
    check(name)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "odd LSTM"])
def test_half_precision_is_rounded_in_every_step(name, dtype):
    check(name, dtype)


@pytest.mark.timeout(120)
def test_two_streams_and_a_graph_compute_the_same():
    inputs, _, functions = kernels("LSTM")
    other = [one.clone() for one in inputs]
    other[0].normal_()
    for config, function in functions.items():
        expected = function(*inputs), function(*other)
        streams = [torch.cuda.Stream() for _ in range(2)]
        torch.cuda.synchronize()
        for _ in range(REPEATS):
            got = []
            for stream, given in zip(streams, (inputs, other), strict=True):
                with torch.cuda.stream(stream):
                    got.append(function(*given))
            torch.cuda.synchronize()
            assert all(torch.equal(*pair) for pair in zip(got[0] + got[1], expected[0] + expected[1], strict=True))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = function(*inputs)
        graph.replay()
        assert all(map(torch.equal, results, expected[0])), config


@pytest.mark.timeout(120)
def test_nan_is_no_reason_to_wait():
    inputs, reference, functions = kernels("odd LSTM")
    inputs[0][3, 1, 5] = float("nan")
    with torch.no_grad():
        expected = reference(*inputs)
    for config, function in functions.items():
        for one, right in zip(function(*inputs), expected, strict=True):
            assert torch.equal(one.isnan(), right.isnan()), config
