"""Concatenations that move towards the outputs: fewer kernels, the same numbers, and whatever gains nothing stays."""

import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import fx

sys.path.insert(0, str(Path(__file__).parent))
from first_choice import optimised, quick, run

from kernelwright.compiler.capture.backward import build_gradient
from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.forward_codegen import PlannedRegion
from kernelwright.compiler.reference import bind_placeholders, build_reference
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.rewrites import concat_sinking
from kernelwright.compiler.rewrites.concat_sinking import sink_concats
from kernelwright.compiler.rewrites.registry import OFF_BY_DEFAULT


@pytest.fixture(scope="module", autouse=True)
def quickly():
    with quick():
        yield


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def captured(program, *args, disabled=OFF_BY_DEFAULT):
    with torch.no_grad():
        return capture(program, args, {}, disabled)


def regions(program, *args, disabled=OFF_BY_DEFAULT):
    return [region for region, _ in plan_regions(captured(program, *args, disabled=disabled).graph)[0]]


def as_it_was(program, *args):
    """The regions without pieces."""
    return regions(program, *args, disabled=OFF_BY_DEFAULT | {"concat_sinking"})


def moved(found):
    return sum(sum(region.bytes_moved) for region in found)


def size(*tensors):
    return sum(tensor.nbytes for tensor in tensors)


def same(program, *args):
    """The optimised program gives what it gave, with kernels, in values, dtypes and strides."""
    made = optimised(program, *args)
    got, used = run(made, *args)
    assert used
    right = program(*args)
    halves = any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in args)  # rounded more often by eager
    torch.testing.assert_close(got, right, **({"rtol": 0.02, "atol": 0.02} if halves else {}))
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, right)), strict=True):
        assert (one.dtype, one.stride()) == (other.dtype, other.stride())
    return made


def turned(x):
    """Rotates halves as Llama does, by slices."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


def turned_by_chunks(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def turned_in_pairs(x):
    """Rotates neighbours as GPT-J does."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


Q, COS, SIN = normal(2, 5, 3, 16), normal(5, 16, seed=1), normal(5, 16, seed=2)
LAYOUTS = {
    "rows first": (Q, COS[:, None], SIN[:, None]),
    "heads first": (normal(2, 3, 5, 16), COS, SIN),
    "heads first by a view": (Q.transpose(1, 2), COS, SIN),
    "with a batch": (Q, normal(2, 5, 1, 16), normal(2, 5, 1, 16, seed=1)),
}
TURNS = (turned, turned_by_chunks, turned_in_pairs)


def some_of(cases):
    """Every second case; the others only in a long run."""
    return [pytest.param(name, marks=pytest.mark.exhaustive if at % 2 else ()) for at, name in enumerate(cases)]


CROSSED = [
    pytest.param(
        layout, turn, marks=() if layout == next(iter(LAYOUTS)) or turn is TURNS[0] else pytest.mark.exhaustive
    )
    for layout in LAYOUTS
    for turn in TURNS
]
"""Every layout and every turn; all together only in a long run."""


@pytest.mark.parametrize(("layout", "turn"), CROSSED)
def test_rotary_is_one_region_that_moves_input_and_output_once(layout, turn):
    rotary_is_one_region(layout, torch.float32, turn)


@pytest.mark.parametrize(("dtype", "turn"), [(torch.bfloat16, turned), (torch.float16, turned_in_pairs)])
def test_rotary_of_halves_is_one_region(dtype, turn):
    rotary_is_one_region("heads first by a view", dtype, turn)


def rotary_is_one_region(layout, dtype, turn):
    x, cos, sin = (tensor.to(dtype) for tensor in LAYOUTS[layout])

    def rotary(x, cos, sin):
        return x * cos + turn(x) * sin

    (region,) = regions(rotary, x, cos, sin)
    assert sum(region.bytes_moved) == size(x, x, cos, sin)
    same(rotary, x, cos, sin)


A, B, C = normal(6, 8, 10), normal(6, 8, 10, seed=1), normal(6, 8, 10, seed=2)
ONE_REGION = {
    "three parts": (lambda a, b, c, y: torch.relu(torch.cat((a, b * 2, c), -1) + y), (6, 8, 30), A, B, C),
    "first dimension": (lambda a, b, y: torch.cat((a, b), 0) * y + 1, (12, 8, 10), A, B),
    "middle dimension": (lambda a, b, y: torch.tanh(torch.cat((a, b), 1)) - y, (6, 16, 10), A, B),
    "the same everywhere": (lambda a, b, y: torch.cat((a, b), 1) * y, (6, 1, 10), A, B),
    "of fewer dimensions": (lambda a, b, y: torch.cat((a, b), 0) * y, (8, 10), A, B),
    "one number": (lambda a, b, y: torch.cat((a, b), 0) * y, (), A, B),
    "unequal": (lambda a, b, y: torch.cat((a, b[:, :4]), 1) * y, (6, 12, 10), A, B),
    "one inside another": (lambda a, b, y: torch.cat((torch.cat((a, b), 1) * 2, y), 1) + 1, (6, 16, 10), A, B),
    "to half": (lambda a, b, y: torch.cat((a, b), 2).bfloat16() * y.bfloat16(), (20,), A, B),
    "stacked": (lambda a, b, y: torch.stack((a, b), 1) * y, (6, 2, 8, 10), A, B),
    "two of them": (lambda a, b, y: torch.cat((a, b), 2) * torch.cat((b, a), 2) + y, (20,), A, B),
    "choice": (lambda a, b, y: torch.where(torch.cat((a, b), 2) > 0, y, 0.0), (6, 8, 20), A, B),
    "with alpha": (lambda a, b, y: torch.add(y, torch.cat((a, b), 2), alpha=3), (6, 8, 20), A, B),
    "bounds": (lambda a, b, y: torch.cat((a, b), 2).clamp(max=y), (6, 8, 20), A, B),
    "reduced before": (lambda a, b, y: torch.cat((a.softmax(-1), b.softmax(-1)), -1) * y, (20,), A, B),
    "shared": (lambda a, b, y: (torch.cat((a, b), 2) + (e := y.exp()), e), (6, 8, 20), A, B),
    "transposed": (lambda a, b, y: torch.cat((a.mT, b.mT), 1) * y.mT, (6, 8, 20), A, B),
}  # fmt: skip


@pytest.mark.parametrize("name", some_of(ONE_REGION))
def test_what_is_computed_on_parts_is_one_region(name):
    program, shape, *given = ONE_REGION[name]
    args = (*given, normal(*shape, seed=3))
    found = regions(program, *args)
    assert len(found) == 1
    assert moved(found) <= moved(as_it_was(program, *args))
    same(program, *args)


def test_a_tensor_that_is_returned_too_is_written_once():
    def program(a, b, y):
        both = torch.cat((a * 2, b), 2)
        return both, torch.relu(both) + y

    y = normal(6, 8, 20, seed=3)
    found = regions(program, A, B, y)
    assert moved(found) == size(A, B, y, y, y)
    same(program, A, B, y)


STAYS = {
    "softmax": lambda a, b: torch.softmax(torch.cat((a, b), 2), -1),
    "softmax of more": lambda a, b: torch.softmax(torch.cat((a, b), 2) * 2 + 1, -1),
    "returned": lambda a, b: torch.cat((a * 2, b), 1),
    "sum": lambda a, b: (torch.cat((a, b), 1) ** 2).sum(1),
    "five parts": lambda a, b: torch.cat((a, b, a, b, a), 1) * 2,
    "odd parts": lambda a, b: torch.cat((a, b[:, :3]), 1) * 2,
    "two dtypes": lambda a, b: torch.cat((a, b.bfloat16()), 1) * 2,
    "nothing": lambda a, b: torch.cat((a, b[:, :0]), 1) * 2,
    "in a product": lambda a, b: torch.cat((a, b), 2) @ torch.cat((a, b), 2).mT * 2,
}


@pytest.mark.parametrize("name", some_of(STAYS))
def test_other_concatenations_stay_right(name):
    program = STAYS[name]
    assert moved(regions(program, A, B)) <= moved(as_it_was(program, A, B))
    got = optimised(program, A, B)(A, B)
    torch.testing.assert_close(got, program(A, B))


def test_a_tensor_that_is_reduced_is_put_together_as_late_as_can_be():
    def program(x, cos, sin):
        return torch.softmax(x * cos + turned(x) * sin, -1)

    args = LAYOUTS["rows first"]
    found, before = regions(program, *args), as_it_was(program, *args)
    assert moved(found) == moved(before) - size(args[0])
    same(program, *args)


def test_random_numbers_are_drawn_once_and_in_order():
    def program(a, b):
        both = torch.cat((a, b), 2)
        first = F.dropout(both * 2, 0.5, True)
        return torch.cat((first, torch.rand_like(first)), 2) + 1

    graph = captured(program, A, B).graph
    drawn = [
        op_name(n.target)
        for n in graph.nodes
        if op_name(n.target) in ("native_dropout", "rand_like", "rand", "bernoulli")
    ]
    torch.manual_seed(3)
    (got,) = fx.Interpreter(fx.GraphModule(torch.nn.Module(), graph)).run(A, B)
    torch.manual_seed(3)
    torch.testing.assert_close(got, program(A, B))
    assert len(drawn) == 2


def test_what_is_changed_in_place_is_changed_once():
    def program(x, y):
        x.mul_(2)
        y.copy_(torch.cat((x, x + 1), 2) * y)
        return y + 1

    for made in (program, optimised(program, A.clone(), normal(6, 8, 20))):
        x, y = A.clone(), normal(6, 8, 20)
        result = made(x, y)
        torch.testing.assert_close(x, A * 2)
        torch.testing.assert_close(y, torch.cat((A * 2, A * 2 + 1), 2) * normal(6, 8, 20))
        torch.testing.assert_close(result, y + 1)


@pytest.mark.parametrize(("layout", "turn"), CROSSED)
def test_the_graph_and_the_reference_compute_what_the_program_does(layout, turn):
    def rotary(x, cos, sin):
        return x * cos + turn(x) * sin

    args = LAYOUTS[layout]
    made = captured(rotary, *args)
    made.graph.lint()
    (value,) = fx.Interpreter(fx.GraphModule(torch.nn.Module(), made.graph)).run(*args)
    torch.testing.assert_close(value, rotary(*args))
    assert value.stride() == rotary(*args).stride()
    ((region, nodes),) = plan_regions(made.graph)[0]
    reference = build_reference(made, PlannedRegion(region, tuple(nodes)))
    by_name = dict(zip((n.name for n in made.sources), bind_placeholders(made, rotary, args, {}), strict=True))
    (got,) = reference(*(by_name[name] for name in region.reads))
    torch.testing.assert_close(got.reshape(-1).sort().values, value.reshape(-1).sort().values)


@pytest.mark.parametrize(("layout", "turn"), CROSSED)
def test_gradients_are_those_of_eager(layout, turn):
    def rotary(x, cos, sin):
        return x * cos + turn(x) * sin

    args = [x.clone().requires_grad_() for x in LAYOUTS[layout]]
    made = optimised(rotary, *args)
    got, used = run(made, *args)
    assert used
    gradient = normal(*got.shape, seed=7)
    right = torch.autograd.grad(rotary(*args), args, gradient)
    torch.testing.assert_close(torch.autograd.grad(got, args, gradient), right)


def test_the_gradient_of_rotary_is_one_region():
    def rotary(x, cos, sin):
        return x * cos + turned(x) * sin

    args = LAYOUTS["heads first"]
    gradient = build_gradient(
        fx.symbolic_trace(lambda x, cos, sin: (rotary(x, cos, sin),)), ["x", "cos", "sin"], args, [0]
    )
    ((region, _),) = plan_regions(gradient.captured.graph)[0]
    assert sum(region.bytes_moved) == size(args[0], *args)


def halves_by_slices(x):
    wide = x * 2 + 1
    return torch.relu(wide[..., :5]) * wide[..., 5:]


def halves_by_chunks(x):
    one, other = (x * 2 + 1).chunk(2, -1)
    return torch.relu(one) * other


@pytest.mark.parametrize("program", [halves_by_slices, halves_by_chunks])
def test_parts_are_taken_of_what_is_read_and_not_of_what_is_computed(program):
    (region,) = regions(program, A)
    assert sum(region.bytes_moved) == size(A) * 3 // 2
    same(program, A)


@pytest.mark.parametrize("program", [lambda x: (x * 2).chunk(2, -1), lambda x: (x.mT * 2)[:, :4].flatten(1)])
def test_parts_that_others_need_as_they_lie_stay(program):
    graph = captured(program, A).graph
    result = fx.Interpreter(fx.GraphModule(torch.nn.Module(), graph)).run(A)
    right = program(A)
    for one, other in zip(result, right if isinstance(right, tuple) else (right,), strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


def test_a_graph_without_concatenations_is_not_touched():
    made = captured(lambda x, y: torch.softmax(x * y, -1), A, B)
    before = str(made.graph)
    sink_concats(made.graph)
    assert str(made.graph) == before


@pytest.mark.parametrize("neighbors", range(4, 28, 3))
def test_statistics_at_the_edge_of_what_is_planned(monkeypatch, neighbors):
    """A variance and mean of which some results are nearer to a concatenation than others."""

    def program(x, y):
        joined = torch.cat([x, y], 1)
        normed = torch.relu(F.batch_norm(joined, None, None, training=True))
        return torch.cat([joined, normed * 2], 1), F.batch_norm(normed, None, None, training=True)

    monkeypatch.setattr(concat_sinking, "MAX_NEIGHBORS", neighbors)
    x, y = normal(2, 4, 5, 6), normal(2, 4, 5, 6)
    captured(program, x, y).graph.lint()
