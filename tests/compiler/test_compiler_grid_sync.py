"""Parts of a row that wait for each other, and steps that stay in registers, where they do: on a GPU."""

import pytest
import torch
import torch.nn.functional as F

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.kernel_source import RegionKernel
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.triton.configs import generate_configs

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

PROGRAMS = {
    "softmax of long rows": (lambda x: torch.softmax(x, -1), (300, 100_000)),
    "layer norm of one row a sample": (lambda x: F.layer_norm(x, (1_000_000,)), (9, 1_000_000)),
    "three sweeps": (lambda x: (x - x.mean(-1, keepdim=True)).abs().amax(-1, keepdim=True) + x, (300, 70_001)),
}


def kernels(program, x):
    """Every way to meet or to hold, each as a function of the tensor."""
    with torch.no_grad():
        ((region, _),), _ = plan_regions(capture(program, (torch.empty_like(x, device="meta"),), {}).graph)
    ways = [choice for choice in generate_configs(region) if choice.grid_sync or choice.register_tiles]
    assert {choice.grid_sync for choice in ways} == {True, False}
    for choice in ways:
        yield choice, getattr(TRITON.load(TRITON.emit_module([RegionKernel(region, choice)])), region.name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_ways_are_right_in_every_call(name):
    program, shape = PROGRAMS[name]
    x = torch.randn(shape, device="cuda")
    for choice, kernel in kernels(program, x):
        for _ in range(20):
            right = program(x.normal_())
            near = {"rtol": 1e-4, "atol": 1e-6 * right.abs().max().item()}
            torch.testing.assert_close(kernel(x), right, **near, msg=lambda text, choice=choice: f"{choice}: {text}")
        right = kernel(x)
        assert all(torch.equal(kernel(x), right) for _ in range(200)), choice


def test_two_streams_and_a_graph_meet_as_well():
    program, shape = PROGRAMS["softmax of long rows"]
    x, y = torch.randn(2, *shape, device="cuda")
    for _, kernel in kernels(program, x):
        right = kernel(x), kernel(y)
        streams = [torch.cuda.Stream() for _ in range(2)]
        torch.cuda.synchronize()
        for _ in range(50):
            for stream, given, wanted in zip(streams, (x, y), right, strict=True):
                with torch.cuda.stream(stream):
                    assert torch.equal(kernel(given), wanted)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = kernel(x)
        for given, wanted in ((y, right[1]), (x.clone(), right[0])):
            x.copy_(given)
            graph.replay()
            assert torch.equal(got, wanted)
