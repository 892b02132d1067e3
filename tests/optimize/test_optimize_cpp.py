"""Programs captured, cut into regions, printed as C++ and run: what comes out is what torch says, in every choice."""

import ctypes
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import kernelwright.optimize
from kernelwright.optimize.capture import capture
from kernelwright.optimize.plan import plan
from kernelwright.optimize.print_cpp import arguments, choices, print_cpp
from kernelwright.toolchain.cpp import FLAGS, compile_shared

VECTORS = (Path(kernelwright.optimize.__file__).parent / "cpp" / "vector.h").read_text()
QUICK = tuple("-O1" if flag == "-O3" else flag for flag in FLAGS)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def captured(program, *args):
    with torch.no_grad():
        return capture(program, args, {})


def execute(graph, regions, args, pick):
    """Runs a graph with its regions as compiled C++, outputs poisoned before."""
    env, flat = {}, iter(args)
    last = {nodes[-1]: region for region, nodes in regions}
    inside = {node for _, nodes in regions for node in nodes}
    by_name = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        if node.op == "placeholder":
            env[node] = next(flat)
        elif node.op == "output":
            return [env[value] for value in node.args[0]]
        elif node in last:
            env |= {by_name[name]: value for name, value in call(last[node], env, by_name, pick).items()}
        elif node not in inside:
            args, kwargs = (torch.fx.map_arg(a, env.__getitem__) for a in (node.args, node.kwargs))
            env[node] = node.target(*args, **kwargs)
    raise AssertionError("a graph ends with an output")


def call(region, env, by_name, pick):
    space = choices(region)
    source = VECTORS + print_cpp(region, space[min(pick, len(space) - 1)])
    function = getattr(ctypes.CDLL(str(compile_shared(source, flags=QUICK))), region.name)
    inputs, _ = arguments(region)
    made = {
        s.buffer: torch.empty_strided(s.shape, s.shape_strides, dtype=getattr(torch, s.dtype)).fill_(77)
        for s in region.stores
    }
    given = [env[by_name[name]] for name in inputs]
    function(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in [*given, *made.values()]))
    return made


X = normal(37, 1000)
Y, W, B = normal(37, 1000, seed=1), normal(1000, seed=2), normal(1000, seed=3)
ODD = torch.tensor([[float("nan"), 1.0, -1.0], [float("inf"), 0.0, 1e-40], [float("-inf"), 3.0, 88.8]])
LOWER = torch.arange(64)[None, :] <= torch.arange(64)[:, None]


def centred_by_group(x):
    groups = x.reshape(3, 4, -1)
    return (groups - groups.mean(-1, keepdim=True)).view(x.shape)


PROGRAMS = {
    "pointwise": (lambda x, y, s, b: torch.relu((x + y) * s + b), X, Y, normal(1), normal(1)),
    "softmax": (lambda x: torch.softmax(x, -1), X),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), X),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (1000,), w, b), X, W, B),
    "rms_norm": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, X, W),
    "activations": (lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x)), X * 3),
    "more_activations": (lambda x: (F.softplus(x * 10), F.hardswish(x), F.leaky_relu(x), torch.sign(x), x.abs()), X),
    "special": (lambda x: (torch.erf(x), torch.expm1(x * 0.1), torch.log1p(x.abs()), x.sin(), x.tanh()), X * 2),
    "powers": (lambda x: (x**3, x.abs() ** 1.7, x.abs() ** -0.5, x**2), X),
    "columns": (lambda x: torch.softmax(x, 0), X),
    "statistics": (lambda x: (x.var(-1), x.mean(-1), x.std(-1, unbiased=False), x.amax(-1)), X),
    "losses": (lambda x, y: (F.mse_loss(x, y), F.huber_loss(x, y), F.l1_loss(x, y)), X, Y),
    "divergence": (lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"), X, Y),
    "group_norm": (lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)), normal(3, 16, 9, 7), normal(16), normal(16)),
    "by_hand": (centred_by_group, normal(3, 16, 9)),
    "channels": (lambda x: x[:, 0] * 0.3 + x[:, 1] * 0.5 + x[:, 2] * 0.2, normal(2, 3, 33, 65)),
    "transposed": (lambda x, y: x.exp().t() + y, X, normal(1000, 37)),
    "bfloat16": (lambda x, w: F.rms_norm(x, (1000,), w), X.bfloat16(), W.bfloat16()),
    "float16": (lambda x: torch.sigmoid(x) * x + 1, X.half()),
    "float64": (lambda x: torch.softmax(x, -1), X.double()),
    "whole_numbers": (lambda x: (x * 3 + 1, x > 2, x.float() / 7), torch.arange(-300, 300).reshape(20, 30)),
    "choice": (lambda x, m: torch.where(m, x, -1.0).sum(-1), X, X > 0.3),
    "positions": (lambda x: torch.softmax(torch.where(torch.arange(64) <= 40, x, float("-inf")), -1), normal(3, 7, 64)),
    "masked": (lambda x, m: torch.softmax(x.masked_fill(~m, float("-inf")), -1), normal(2, 64, 64), LOWER),
    "clamped": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + x.clamp(max=0.2), X),
    "not_a_number": (lambda x: torch.relu(x) + x.amax(-1, keepdim=True), ODD),
    "infinite": (lambda x: (torch.exp(x), torch.log(x), torch.sigmoid(x)), ODD),
    "two_rows": (lambda x: (x.sum(-1), x.sum(0)), X),
    "both_means": (lambda x: x - x.mean(0) - x.mean(1, keepdim=True), X),
    "odd_slice": (lambda x: torch.softmax(x[:, 1:] * 2, -1), normal(5, 18)),
    "long_row": (lambda x: torch.softmax(x, -1), normal(2, 50_001)),
    "cosine": (lambda x, y: F.cosine_similarity(x, y), X, Y),
}  # fmt: skip
IN_EVERY_CHOICE = ("pointwise", "softmax", "columns", "statistics", "long_row")
CASES = [(name, 0) for name in PROGRAMS] + [(name, pick) for name in IN_EVERY_CHOICE for pick in (1, 2, 3)]


@pytest.mark.parametrize(("name", "pick"), CASES, ids=lambda value: str(value))
def test_printed_regions_compute_what_torch_does(name, pick):
    program, *args = PROGRAMS[name]
    module = captured(program, *args).module
    regions, refused = plan(module.graph)
    assert regions
    views = ("view", "slice", "select", "unsqueeze", "as_strided", "assert", "arange", "detach", "lift")
    assert all(any(view in str(node.target) for view in views) for node in refused), refused
    wanted = program(*args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, right in zip(execute(module.graph, regions, args, pick), wanted, strict=True):
        assert (got.shape, got.dtype) == (right.shape, right.dtype)
        torch.testing.assert_close(got, right, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "count"), [("softmax", 1), ("layer_norm", 1), ("pointwise", 1), ("two_rows", 2), ("by_hand", 1)]
)
def test_what_one_kernel_can_hold_is_one_region(name, count):
    program, *args = PROGRAMS[name]
    assert len(plan(captured(program, *args).module.graph)[0]) == count


def test_a_region_reads_as_text_and_counts_its_bytes():
    ((region, _),), _ = plan(captured(lambda x, w: x / x.sum(-1, keepdim=True) * w, X, W).module.graph)
    assert str(region).splitlines()[0] == "region_0: i0=37, rows of r0=1,000"
    assert "sum_1 = sum(args_0_in) over the row  float32" in str(region)
    assert region.bytes_moved == (4 * (37_000 + 1000), 4 * 37_000)


def test_a_dear_step_is_not_repeated_for_every_row():
    regions, _ = plan(captured(lambda x, w: x * torch.exp(w), X, W).module.graph)
    assert len(regions) == 2, "exp of the weights has a region of its own"
