"""Runs one rewrite alone on a program, and compares the rewritten graph with the program in FP64."""

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.reference import bind_placeholders
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.registry import REWRITES


def all_but(*names):
    """The other rewrites."""
    return frozenset(rewrite.name for rewrite in REWRITES) - set(names)


def captured_with(program, args, *names):
    """The program with these rewrites alone."""
    with torch.no_grad():
        return capture(program, tuple(args), {}, all_but(*names))


def count(captured, name):
    """In how many places a rewrite was applied."""
    return sum(rewrite.count for rewrite in captured.rewrites if rewrite.name == name)


def run(captured, program, *args):
    """The results of the captured graph, as a list."""
    with torch.no_grad():
        values = bind_placeholders(captured, program, args, {})
        module = fx.GraphModule(torch.nn.Module(), captured.graph)
        return list(fx.Interpreter(module).run(*values, enable_io_processing=False))


def check(program, args, *names, times=1, tolerance=1e-10):
    """Each rewrite alone applies so often, and the graph's results and layouts stay those of the program."""
    captured = captured_with(program, args, *names)
    assert sum(count(captured, name) for name in names) == times, captured.rewrites
    captured.graph.lint()
    with torch.no_grad():
        expected = pytree.tree_leaves(program(*args))
    for got, want in zip(run(captured, program, *args), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, check_stride=True)
    return captured


def operators(captured):
    """The names of the operators of the graph, in order."""
    return [op_name(node.target) for node in captured.graph.nodes if node.op == "call_function"]


def randomized(module, seed=0):
    """A module in FP64 and eval mode, with random parameters and buffers, none near 0."""
    generator = torch.Generator().manual_seed(seed)
    module = module.double().eval()
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator).double() + 0.5)
                tensor.mul_(torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1)
        for name, tensor in module.named_buffers():
            if name.endswith("running_var"):
                tensor.abs_()
    return module


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
