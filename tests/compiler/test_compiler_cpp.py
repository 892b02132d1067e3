"""Programs captured, cut into regions, printed as C++ and run: what comes out is what torch says, in every choice."""

import ctypes
import functools
import math
import sys
from pathlib import Path

import pytest
import torch
from tiers import fast_first, slow

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.cpp.prelude import select_prelude
from kernelwright.compiler.cpp.printer import CppConfig, generate_configs, print_cpp
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.regions.region import Axis, Load, Reduction, Region, Step, Store
from kernelwright.toolchain.cpp import FLAGS, compile_shared

sys.path.insert(0, str(Path(__file__).parent))
from programs import PROGRAMS, W, X

QUICK = tuple("-O1" if flag == "-O3" else flag for flag in FLAGS)


def captured(program, *args):
    with torch.no_grad():
        return capture(program, args, {})


@functools.cache
def planned(name):
    """The graph of one of `PROGRAMS`, its regions and what no region holds."""
    program, *args = PROGRAMS[name]
    graph = captured(program, *args).graph
    return graph, *plan_regions(graph)


def execute(graph, regions, args, pick):
    """Runs a graph with its regions as compiled C++, each when the first of its values is needed."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    env = dict(zip(placeholders, args, strict=True))
    region_of = {node: region for region, nodes in regions for node in nodes}
    by_name = {node.name: node for node in graph.nodes}

    def value(node):
        if node not in env and node in region_of:
            region = region_of[node]
            inputs = {name: value(by_name[name]) for name in region.reads}
            env.update({by_name[name]: made for name, made in call(region, inputs, pick).items()})
        elif node not in env:
            given, named = (torch.fx.map_arg(a, value) for a in (node.args, node.kwargs))
            env[node] = node.target(*given, **named)
        return env[node]

    (end,) = (node for node in graph.nodes if node.op == "output")
    return [value(node) for node in end.args[0]]


def call(region, inputs, pick):
    space = generate_configs(region)
    function = function_of(region, space[min(pick, len(space) - 1)])
    made = {
        s.buffer: torch.empty_strided(s.shape, s.shape_strides, dtype=getattr(torch, s.dtype)).fill_(77)
        for s in region.stores
    }
    function(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in [*inputs.values(), *made.values()]))
    return made


def function_of(region, choice):
    printed = print_cpp(region, choice)
    return getattr(ctypes.CDLL(str(compile_shared(select_prelude(printed) + printed, flags=QUICK))), region.name)


IN_EVERY_CHOICE = ("pointwise", "softmax", "columns", "statistics", "long_row")
IN_EVERY_CHOICE += ("places", "running", "running_back", "picked", "tall", "int8_folds")
FAST = [name for name in list(PROGRAMS)[::2] if not name.startswith(("uint8_", "int16_"))]
CASES = [(name, 0) if name in FAST else slow((name, 0)) for name in PROGRAMS]
CASES += fast_first(3, [(name, 2) for name in IN_EVERY_CHOICE])
CASES += [pytest.param(name, pick, marks=pytest.mark.exhaustive) for name in IN_EVERY_CHOICE for pick in (1, 3)]


@pytest.mark.parametrize(("name", "pick"), CASES, ids=lambda value: str(value))
def test_printed_regions_compute_what_torch_does(name, pick):
    program, *args = PROGRAMS[name]
    graph, regions, refused = planned(name)
    assert regions
    views = ("view", "slice", "select", "unsqueeze", "as_strided", "assert", "arange", "detach", "lift")
    assert all(any(view in str(node.target) for view in views) for node in refused), refused
    wanted = program(*args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, right in zip(execute(graph, regions, args, pick), wanted, strict=True):
        assert (got.shape, got.dtype) == (right.shape, right.dtype)
        torch.testing.assert_close(got, right, equal_nan=True)


FUNCTIONS = (
    torch.exp, torch.expm1, torch.log, torch.log1p, torch.tanh, torch.exp2, torch.sin, torch.cos, torch.tan,
    torch.asin, torch.acos, torch.atan, torch.sinh, torch.cosh, torch.erfc,
)  # fmt: skip


def every_exponent(seed=0):
    """Floats of every sign and exponent, infinities and NaN among them."""
    rest = torch.randint(2**16, (2**16,), generator=torch.Generator().manual_seed(seed))
    return (torch.arange(2**16) << 16 | rest).int().view(torch.float32)


def errors(got, right):
    """In units of the last place, of results that are finite; others and the signs of zeros have to be the same."""
    rounded = right.float()
    assert torch.equal(got.isnan(), rounded.isnan())
    assert torch.equal(got.isinf(), rounded.isinf())
    zero = (got == 0) & (rounded == 0)
    assert torch.equal(got.signbit() & zero, rounded.signbit() & zero)
    unit = torch.nextafter(rounded.abs(), torch.tensor(torch.inf)) - rounded.abs()
    return torch.where(rounded.isfinite(), (got - right).abs() / unit, 0.0)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions_are_within_two_and_a_half_units_in_the_last_place(function):
    quarters = (torch.arange(1.0, 80_001.0).double() * torch.pi / 2).float()  # where sines and cosines vanish
    near = torch.cat((torch.linspace(-11, 11, 60_000), torch.linspace(-150, 150, 60_000)))
    x = torch.cat((every_exponent(), quarters, -torch.nextafter(quarters, torch.tensor(0.0)), near, torch.zeros(5)))
    ((region, _),), _ = plan_regions(captured(lambda x: function(x) * 1.0, x).graph)
    (got,) = call(region, {"x": x}, 0).values()
    error = errors(got, function(x.double()))
    assert error.max() <= 2.5, (error.max(), x[error.argmax()])


NUMBERS = torch.tensor([
    0.0, 1.0, 2.0, 3.0, 7.0, 0.1, 0.3, 0.5, 1.5, 5.5, 1e-45, 1e-40, 2**-126, 1 - 2**-24, 1 + 2**-23, 127.0, 150.0,
    2**22, 2**23 + 1, 2**24 - 1, 2**24 + 2, 2147483648.0, 1e20, 3e38, torch.inf, torch.nan,
])  # fmt: skip
PAIRS = torch.cartesian_prod(torch.cat((NUMBERS, -NUMBERS)), torch.cat((NUMBERS, -NUMBERS))).t()


def multiples():
    """Numbers that are multiples of others, and their neighbours; then every exponent by every other."""
    generator = torch.Generator().manual_seed(0)
    y = torch.cat((torch.randn(10_000, generator=generator), torch.randint(1, 9, (10_000,), generator=generator) * 0.1))
    x = y * torch.randint(-(2**20), 2**20, y.shape, generator=generator)
    up, down = (torch.nextafter(x, torch.tensor(end)) for end in (torch.inf, -torch.inf))
    order = torch.randperm(2**16, generator=generator)
    return torch.cat((x, up, down, every_exponent(1), PAIRS[0])), torch.cat(
        (y, y, y, every_exponent(2)[order], PAIRS[1])
    )


def bits_of(x):
    """The bits of floats, all NaN alike."""
    return torch.where(x.isnan(), torch.nan, x).view(torch.int32)


def test_remainders_and_whole_quotients_are_exactly_torch_s():
    x, y = multiples()
    vectors_overflow = (x / y).isinf() & x.isfinite() & (y != 0)  # there torch's vectors give NaN, one number does not
    programs = (torch.fmod, torch.remainder, torch.floor_divide, functools.partial(torch.div, rounding_mode="trunc"))
    ((region, _),), _ = plan_regions(captured(lambda x, y: tuple(program(x, y) for program in programs), x, y).graph)
    found = call(region, {"x": x, "y": y}, 0).values()
    for program, got in zip(programs, found, strict=True):
        exact = program in (torch.fmod, torch.remainder)
        compared = ~vectors_overflow if exact else torch.ones_like(vectors_overflow)
        assert torch.equal(bits_of(got)[compared], bits_of(program(x, y))[compared]), program
    left, whole = next(iter(found)), x.double().fmod(y.double()).float()
    assert torch.equal(bits_of(left), bits_of(whole))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_divisor_beside_halves_is_rounded_to_half_precision_first(dtype):
    x = torch.arange(-60, 60).to(dtype) * torch.tensor(1.7, dtype=dtype) / 2
    programs = (torch.remainder, torch.fmod, torch.floor_divide)
    ((region, _),), _ = plan_regions(captured(lambda x: tuple(program(x, 1.7) for program in programs), x).graph)
    for program, got in zip(programs, call(region, {"x": x}, 0).values(), strict=True):
        assert torch.equal(got, program(x, 1.7)), program


def test_numbers_are_rounded_as_torch_does():
    x = torch.cat((every_exponent(), torch.arange(-20, 20) / 2))
    programs = (torch.floor, torch.ceil, torch.trunc, torch.round)
    ((region, _),), _ = plan_regions(captured(lambda x: tuple(program(x) for program in programs), x).graph)
    for program, got in zip(programs, call(region, {"x": x}, 0).values(), strict=True):
        assert torch.equal(bits_of(got), bits_of(program(x))), program


def test_powers_are_within_one_unit_in_the_last_place():
    generator = torch.Generator().manual_seed(0)
    x, small = torch.randn(2**15, generator=generator), torch.randn(2**15, generator=generator)
    order = torch.randperm(2**16, generator=generator)
    x = torch.cat((x.abs(), x, 1 + 1e-6 * small, every_exponent(1), PAIRS[0]))
    y = torch.cat((8 * small, (4 * small).round(), 1e6 * small, every_exponent(2)[order], PAIRS[1]))
    ((region, _),), _ = plan_regions(captured(lambda x, y: x**y * 1.0, x, y).graph)
    (got,) = call(region, {"x": x, "y": y}, 0).values()
    error = errors(got, x.double() ** y.double())
    assert error.max() <= 1, (error.max(), x[error.argmax()], y[error.argmax()])


@pytest.mark.parametrize(("logarithm", "base"), [(torch.log2, 2.0), (torch.log10, 10.0)])
def test_logarithms_of_powers_of_their_base_are_whole(logarithm, base):
    powers = torch.arange(-37.0, 38.0)
    x = base ** powers.double()
    ((region, _),), _ = plan_regions(captured(lambda x: logarithm(x) * 1.0, x.float()).graph)
    (got,) = call(region, {"x": x.float()}, 0).values()
    assert torch.equal(got, powers)


@pytest.mark.parametrize("columns", [33, 64, 1000])
def test_results_written_past_the_caches_are_the_same(columns):
    x = X[:, :columns].contiguous()
    graph = captured(lambda x: torch.softmax(x, -1) + 1, x).graph
    ((region, _),), _ = plan_regions(graph)
    choice = CppConfig(vector_axis="r0", nontemporal_stores=True)
    assert "store_nontemporal(" in print_cpp(region, choice)
    function = function_of(region, choice)
    got = torch.full_like(x, 77.0)
    function(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(got.data_ptr()))
    torch.testing.assert_close(got, torch.softmax(x, -1) + 1)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("softmax", 1),
        ("group_norm", 1),
        ("batch_norm", 1),
        ("batch_norm_training", 1),
        ("layer_norm", 1),
        ("pointwise", 1),
        ("two_rows", 2),
        ("by_hand", 1),
    ],
)
def test_what_one_kernel_can_hold_is_one_region(name, count):
    assert len(planned(name)[1]) == count


def test_a_region_reads_as_text_and_counts_its_bytes():
    ((region, _),), _ = plan_regions(captured(lambda x, w: x / x.sum(-1, keepdim=True) * w, X, W).graph)
    assert str(region).splitlines()[0] == "region_0: i0=37, rows of r0=1,000"
    assert "sum_1 = sum(x_in) over the row  float32" in str(region)
    assert region.bytes_moved == (4 * (37_000 + 1000), 4 * 37_000)


def biased_by_distance(x, w):
    places = torch.arange(x.shape[-1])
    distance = places[:, None] - places
    return torch.softmax((x - w[:, None, None] * distance).masked_fill(distance < 0, float("-inf")), -1)


def test_of_a_diagonal_nobody_writes_the_rest():
    program, x = PROGRAMS["matched"]
    regions, _ = plan_regions(captured(program, x).graph)
    assert max(sum(store.shape) for region, _ in regions for store in region.stores) <= 37


@pytest.mark.parametrize("name", ["distilled", "spread", "spread_columns"])
def test_of_what_is_summed_over_all_nobody_writes_more_than_a_row_s_sum(name):
    program, *args = PROGRAMS[name]
    regions, refused = plan_regions(captured(program, *args).graph)
    assert not refused
    assert max(math.prod(store.shape) for region, _ in regions for store in region.stores) <= 37


@pytest.mark.parametrize("name", ["running_window", "running_halves"])
def test_of_running_sums_whose_parts_are_needed_nobody_writes_the_whole(name):
    program, x = PROGRAMS[name]
    regions, refused = plan_regions(captured(program, x).graph)
    assert not refused
    assert all(math.prod(store.shape) < x.numel() for region, _ in regions for store in region.stores)


@pytest.mark.parametrize("pick", [0, 2])
def test_a_window_of_zeros_in_a_running_sum_holds_nothing(pick):
    def program(x):
        sums = x.cumsum(-1)
        return (sums[:, 9:] - sums[:, :-9]) * 2

    x = torch.rand(37, 400) * 1e4
    x[:, 200:] = 0
    graph = captured(program, x).graph
    (got,) = execute(graph, plan_regions(graph)[0], (x,), pick)
    assert not program(x)[:, 200:].any() and not got[:, 200:].any()
    torch.testing.assert_close(got, program(x.double()).float(), rtol=0, atol=0.5)


WHOLE_SUMS = {
    "returned": lambda x: (lambda sums: (sums, sums[:, 9:] * 2))(x.cumsum(-1)),
    "a part returned": lambda x: x.cumsum(-1)[:, 9:],
    "other rows": lambda x: x.cumsum(-1)[9:] * 2,
    "every second": lambda x: x.cumsum(-1)[:, ::2] * 2,
    "halves": lambda x: x.half().cumsum(-1)[:, 9:] * 2,
    "turned": lambda x: x.t().cumsum(-1)[:, 9:] * 2,
    "looked at": lambda x: x.cumsum(-1)[:, 9:].select(0, 1) * 2,
    "a view returned": lambda x: x.cumsum(-1)[:, 9:].unsqueeze(0),
    "many parts": lambda x: (lambda sums: sums[:, 9:] * sums[:, 8:-1] + sums[:, 7:-2])(x.cumsum(-1)),
    "one number": lambda x: x.sum().cumsum(0) * 2,
}


@pytest.mark.parametrize("how", WHOLE_SUMS)
def test_other_running_sums_stay_what_they_are(how):
    graph = captured(WHOLE_SUMS[how], X).graph
    assert len(graph.find_nodes(op="call_function", target=torch.ops.aten.cumsum.default)) == 1
    assert len(graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList)) == (how == "one number")


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.cumsum(1)[:, 2:].select(0, 1) * 2,
        lambda x: x.cumsum(1)[:, :3].select(0, 1) * 2,
        lambda x: x.cumsum(1)[:, 2:].transpose(0, 1).split(2)[1] * 2,
    ],
)
def test_who_looks_at_a_part_of_a_running_sum_finds_it_where_it_lies(program):
    x = X[:24, :10].reshape(4, 6, 10)
    graph = captured(program, x).graph
    (got,) = execute(graph, plan_regions(graph)[0], (x,), 0)
    torch.testing.assert_close(got, program(x))


@pytest.mark.parametrize("lanes", ["i0", "r0"])
@pytest.mark.parametrize("program", [lambda x: x.cumsum(1), lambda x: x.flip(1).cumsum(1).flip(1)])
def test_a_running_sum_is_rounded_once_as_torch_s_is(program, lanes):
    x = torch.rand(40, 500)
    x[:, 3::90] *= 1e4
    ((region, _),), _ = plan_regions(captured(program, x).graph)
    axis = (region.outer if lanes == "i0" else region.row)[0].name
    (out,) = region.stores
    made = torch.empty(40, 500)
    function_of(region, CppConfig(vector_axis=axis))(*(ctypes.c_void_p(one.data_ptr()) for one in (x, made)))
    assert out.shape == made.shape
    assert torch.equal(made, program(x.double()).float())


def test_every_half_is_the_float_that_it_is():
    x = torch.arange(2**16).short().view(torch.float16)
    ((region, _),), _ = plan_regions(captured(lambda x: x.float() * 1.0, x).graph)
    (got,) = call(region, {"x": x}, 0).values()
    assert torch.equal(got.nan_to_num(nan=7e7), x.float().nan_to_num(nan=7e7))


@pytest.mark.parametrize(
    ("program", "lanes", "ahead"),
    [
        (lambda x: x.exp(), "i0", True),
        (lambda x: x.softmax(-1), "r0", True),
        (lambda x: x.softmax(0), "i0", False),
    ],
)
def test_a_walk_along_memory_asks_for_what_it_comes_to(program, lanes, ahead):
    ((region, _),), _ = plan_regions(captured(program, X).graph)
    assert ("load_prefetch<V>(" in print_cpp(region, CppConfig(vector_axis=lanes))) == ahead


def test_sums_of_halves_are_rounded_once():
    regions, _ = plan_regions(captured(lambda x: (x - x.mean(-1, keepdim=True)).sum(), X.half()).graph)
    halves = [store for region, _ in regions for store in region.stores if store.dtype == "float16"]
    assert [math.prod(store.shape) for store in halves] == [1], "the mean of each row is stored in FP32"


def test_positions_are_counted_and_not_read():
    x, w = X[:, :49].reshape(37, 7, 7), W[:37]
    graph = captured(biased_by_distance, x, w).graph
    regions, refused = plan_regions(graph)
    assert ([set(region.reads) for region, _ in regions], refused) == ([{"x", "w"}], {})
    torch.testing.assert_close(*execute(graph, regions, (x, w), 0), biased_by_distance(x, w))


def test_what_is_cheap_is_made_again_rather_than_read():
    program, x = PROGRAMS["both_ways"]
    regions, _ = plan_regions(captured(program, x).graph)
    assert [region.bytes_moved for region, _ in regions] == [(4 * 37_000, 4 * 37_000)] * 2
    assert {name for region, _ in regions for name in region.reads} == {"x"}


def test_a_dear_step_is_not_repeated_for_every_row():
    regions, _ = plan_regions(captured(lambda x, w: x * torch.exp(w), X, W).graph)
    assert len(regions) == 2, "exp of the weights has a region of its own"


def test_a_tensor_without_elements_stays_with_torch():
    regions, refused = plan_regions(captured(lambda x: (x * 2).sum(0), torch.empty(0, 5)).graph)
    assert not regions and "a tensor without elements" in refused.values()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_whole_numbers_have_whole_powers_and_are_their_own_floor(dtype):
    def program(x, y):
        return torch.floor(x) + 3 * torch.ceil(x) + 5 * torch.trunc(x) + 7 * torch.round(x), torch.pow(x, y), x**7

    x = torch.arange(-60, 60, dtype=dtype).repeat(8)
    y = torch.arange(8).repeat_interleave(120).to(dtype) - 2
    captured_program = captured(program, x, y)
    ((region, _),), left = plan_regions(captured_program.graph)
    assert not left
    found = call(region, {"x": x, "y": y}, 0)
    for got, right in zip(found.values(), program(x, y), strict=True):
        assert torch.equal(got, right)


@pytest.mark.parametrize("lanes", ["i0", "r0"])
def test_a_value_that_is_the_same_along_a_row_is_stored_for_each_of_its_elements(lanes):
    region = Region(
        name="repeated",
        outer=(Axis(name="i0", size=40),),
        row=(Axis(name="r0", size=3),),
        loads=(Load(value="x_in", buffer="x", dtype="float32", strides={"i0": 1}),),
        steps=(
            Reduction(value="total", op="sum", arg="x_in", dtype="float32"),
            Step(value="share", op="div", args=("x_in", "total"), dtype="float32"),
        ),
        stores=(
            Store(
                value="share", buffer="out", dtype="float32", shape=(3, 40), shape_strides=(40, 1),
                strides={"r0": 40, "i0": 1},
            ),
        ),
    )  # fmt: skip
    x, out = torch.rand(40) + 1, torch.zeros(3, 40)
    function_of(region, CppConfig(vector_axis=lanes))(*(ctypes.c_void_p(one.data_ptr()) for one in (x, out)))
    torch.testing.assert_close(out, torch.full((3, 40), 1 / 3))


@pytest.mark.parametrize("dim", [0, 1])
def test_a_running_sum_runs_again_in_every_pass_that_needs_it(dim):
    def program(x):
        sums = x.cumsum(dim)
        return sums * x, sums.log_softmax(dim)

    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = captured(program, x).graph
    regions, _ = plan_regions(graph)
    assert len(regions) == 1
    for pick in range(len(generate_configs(regions[0][0]))):
        torch.testing.assert_close(tuple(execute(graph, regions, (x,), pick)), program(x))
