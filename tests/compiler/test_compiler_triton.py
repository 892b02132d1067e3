"""Programs captured, cut into regions, printed as Triton and interpreted: what comes out is what torch says.

Triton's interpreter is switched on before Triton is imported, so this file runs itself once in a process of its own,
which reports every case. There `libdevice`, which needs a GPU, is torch; the printed text is the same.
"""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))  # for this file alone, where it is interpreted
sys.path.insert(0, str(Path(__file__).parent))
from programs import CLASSES, ODD, PROGRAMS, X, Y, normal
from ptx_arithmetic import evaluated
from tiers import fast_where, slow
from triton_interpreter import compiled, interpret, module_of, report_cases, selected_cases
from ways import ways

from kernelwright.compiler.capture.capture import capture
from kernelwright.compiler.regions import lowering
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.partition import plan_regions
from kernelwright.compiler.regions.region import Axis, Load, Region, Scan, Step, Store
from kernelwright.compiler.triton import tile
from kernelwright.compiler.triton.configs import MAX_CONFIGS, generate_configs
from kernelwright.compiler.triton.printer import print_triton
from kernelwright.compiler.triton.tile import TritonConfig

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.xdist_group("triton")

INFINITE = torch.full((3, 300), float("-inf"))
INFINITE[1, 7], INFINITE[2, 250] = 2.0, float("inf")
TIED = torch.tensor([1.0, 3.0, 3.0, float("nan"), 2.0, float("nan"), 0.0]).repeat(3, 20)
TIED[0] = TIED[0].nan_to_num(-1.0)
TIED[1, 3] = 9.0
TIED_LATE = torch.zeros(6, 300)
TIED_LATE[:, [3, 67, 131, 150, 195, 259, 290]] = 2.0
FAR = normal(3, 300, seed=5) + 10_000.0
SMALL = X[:6, :300]
WHOLE = torch.arange(-300, 300).reshape(20, 30)
MORE = {
    "extremes_places": (lambda x: (torch.max(x, -1), torch.min(x, -1)), TIED),
    "places": (lambda x: (x.argmax(-1), x.argmin(-1)), TIED),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), INFINITE),
    "infinite_softmax": (lambda x: torch.softmax(x, -1), INFINITE),
    "far_variance": (lambda x: x.var(-1), FAR),
    "far_norm": (lambda x: F.layer_norm(x, (300,)), FAR - 9900.0),
    "truths": (lambda x: ((x > 2).any(-1), (x > -2).all(-1), (x > 0).sum(-1)), SMALL),
    "products": (lambda x: (x.abs() + 0.5).prod(-1), X[:6, :20]),
    "divisions": (
        lambda x, y: (x // y, x % y, torch.fmod(x, y), x.div(y, rounding_mode="trunc")),
        torch.tensor([1.0, -1.0, 5.5, -5.5, 7.0, 0.3]),
        torch.tensor([0.1, 0.1, 2.0, 2.0, -2.0, -0.1]),
    ),
    "whole_divisions": (lambda x: (x // 7, x % 7, torch.fmod(x, -7), x.clamp(-5, 2**40), -x, x.abs(), x.sign()), WHOLE),
    "whole_powers": (
        lambda x, y: (x**y, (x % 9) ** (y % 5), x**7, x.to(torch.int32) ** y.to(torch.int32)),
        WHOLE,
        WHOLE % 13 - 4,
    ),
    "large_numbers": (lambda x: x * 3_000_000_017 + 2**40, WHOLE),
    "whole_extremes": (lambda x: (x.amax(-1), x.amin(-1), x.sum(-1), x.argmax(-1)), WHOLE),
    "bytes_that_wrap": (
        lambda x, y: (x & -8, x + 300, y + 200, y * 300, y & 200),
        torch.arange(256).to(torch.uint8),
        torch.arange(-128, 128).to(torch.int8),
    ),
    "logic": (lambda x, y: ((x > 0) & (y > 0), (x > 0) ^ (y > 0), ~(x > 0), (x > 0).float() + y), SMALL, Y[:6, :300]),
    "rounding": (lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.to(torch.int64)), SMALL * 4.5),
    "functions": (lambda x: (x.tan(), x.atan(), x.sinh(), x.cosh(), torch.erfc(x), x.exp2(), x.cos()), SMALL),
    "more_functions": (lambda x: (x.log2(), x.log10(), x.rsqrt(), x.sqrt(), 1 / x, (x / 9).asin()), SMALL.abs()),
    "double_constants": (lambda x: torch.clamp(x * 0.1 + 1e-12, -0.3, 0.7) / 3, SMALL.double()),
    "double_variance": (lambda x: F.layer_norm(x, (300,)), FAR.double()),
    "batch_means": (lambda x: x - x.mean((0, 2), keepdim=True), normal(3, 5, 36)),
    "half_rows": (lambda x: torch.softmax(x, -1), SMALL.bfloat16()),
    "same_everywhere": (lambda x: x[:, :1].expand(6, 50).sum(-1), SMALL),
    "constant_rows": (lambda x: torch.where(x > 0, 1.0, 2.0), SMALL),
    "nan_checks": (lambda x: (x.isnan(), x.isinf(), x.relu(), x.clamp(-1, 1)), ODD),
    "long_sums": (lambda x: (x.sum(0), x.amax(0)), X),
    "all_of_it": (lambda x: x.sum(), X),
    "known_powers": (lambda x: (x**0.375, x**-0.75, (1e30 * x) ** 1.25, (x - 0.5) ** 1.75), SMALL.abs() + 0.01),
    "rounded_power": (lambda x: x**0.4, SMALL.abs() + 0.01),
    "powers_of_rows": (lambda x: x * (x * x).sum(-1, keepdim=True) ** 0.3, SMALL),
}  # fmt: skip


def shares_of_others(x, y):
    """Exponentials over sums that are not their own, and over those that are."""
    above, below = torch.exp(x.float() - x.float().amax(-1, True)), torch.exp(y.float() - y.float().amax(-1, True))
    first, second = above.sum(-1, keepdim=True), below.sum(-1, keepdim=True)
    return (above / second).bfloat16(), (above / first).bfloat16(), (below / first).bfloat16(), first


def guarded_shares(x):
    """As people write them who have met rows of minus infinity."""
    top = x.float().amax(-1, keepdim=True)
    powers = torch.exp(x.float() - torch.where(top.abs() == float("inf"), 0.0, top))
    return (powers / powers.sum(-1, keepdim=True)).bfloat16()


GUARDED = SMALL.bfloat16().index_put(
    (torch.tensor([1, 1]), torch.tensor([5, 40])), torch.tensor([float("inf"), 100]).bfloat16()
)
LOOPED = TritonConfig(BLOCK_M=1, BLOCK_N=64, num_warps=4)
LOOPED_ROWS = TritonConfig(BLOCK_M=4, BLOCK_N=32, num_warps=4)
SPLIT = TritonConfig(BLOCK_M=1, BLOCK_N=64, num_warps=4, num_splits=3)
SPLIT_ROWS = TritonConfig(BLOCK_M=8, BLOCK_N=32, num_warps=4, num_splits=4)
FORCED = {"looped": LOOPED, "looped_rows": LOOPED_ROWS, "split": SPLIT, "split_rows": SPLIT_ROWS}
MET = TritonConfig(BLOCK_M=1, BLOCK_N=64, num_warps=4, num_splits=3, grid_sync=True)
HELD = {
    "met": MET, "met_held": msgspec.structs.replace(MET, register_tiles=2),
    "met_all_held": msgspec.structs.replace(MET, register_tiles=9),
    "held": TritonConfig(BLOCK_M=1, BLOCK_N=64, num_warps=4, register_tiles=2, num_stages=3),
    "held_rows": TritonConfig(BLOCK_M=4, BLOCK_N=32, num_warps=4, register_tiles=3),
    "all_held": TritonConfig(BLOCK_M=2, BLOCK_N=16, num_warps=4, register_tiles=99),
    "ahead": TritonConfig(BLOCK_M=1, BLOCK_N=256, num_warps=4, register_tiles=1),
    "grouped": TritonConfig(BLOCK_M=1, BLOCK_N=64, num_warps=4, register_tiles=2, vector_accumulators=True),
    "grouped_ahead": TritonConfig(BLOCK_M=1, BLOCK_N=256, num_warps=4, register_tiles=1, vector_accumulators=True),
    "grouped_met": msgspec.structs.replace(MET, register_tiles=1, vector_accumulators=True),
}  # fmt: skip
"""Ways to sweep a row again without reading all of it twice."""
JOINED = {
    "joined": msgspec.structs.replace(SPLIT, combine_kernel=True),
    "joined_rows": msgspec.structs.replace(SPLIT_ROWS, combine_kernel=True),
}
AGAIN = {
    "softmax": (PROGRAMS["softmax"][0], SMALL), "far_norm": MORE["far_norm"], "batch_means": MORE["batch_means"],
    "log_softmax": (PROGRAMS["log_softmax"][0], SMALL), "half_rows": MORE["half_rows"],
    "infinite_softmax": MORE["infinite_softmax"], "edges": PROGRAMS["edges"],
    "softmax_picked": (lambda x, at: torch.softmax(x, -1) - x.gather(1, at), SMALL, CLASSES[:6, None] % 300),
    "norm_of_softmax": (lambda x: F.layer_norm(torch.softmax(x, -1), (300,)), SMALL),
    "place_after": (lambda x: (x - x.mean(-1, keepdim=True)).argmax(-1), TIED_LATE),
    "row_and_all": (lambda x: (x / x.abs().sum(-1, keepdim=True), x.amax(-1)), SMALL),
    "over_all": (lambda x: x / x.norm(), SMALL),
    "shares_of_others": (shares_of_others, SMALL.bfloat16(), 3 * SMALL.bfloat16() + 1),
    "guarded_shares": (guarded_shares, GUARDED),
}  # fmt: skip
WIDE = {"softmax", "far_norm", "positions", "edges", "places", "batch_means", "odd_slice", "pointwise"}
"""These are also printed as if int32 ended at `SMALL_INT32`, some rows below it and some beyond."""
SMALL_INT32, LARGEST_INT32 = 250, tile.MAX_INT32_OFFSET
FORCED_ON = {
    "extremes_places": MORE, "logsumexp": MORE, "infinite_softmax": MORE, "far_variance": MORE, "far_norm": MORE,
    "truths": MORE,
    "products": MORE, "whole_extremes": MORE, "double_variance": MORE, "batch_means": MORE, "half_rows": MORE,
    "same_everywhere": MORE, "places": MORE, "columns": {"columns": (PROGRAMS["columns"][0], X[:, :40])},
    "positions": PROGRAMS, "masked": PROGRAMS,
    "choice": {"choice": (PROGRAMS["choice"][0], SMALL, SMALL > 0.3)},
    "log_softmax": {"log_softmax": (PROGRAMS["log_softmax"][0], SMALL)}, "odd_slice": PROGRAMS,
    "int8_folds": PROGRAMS, "rows_of_bytes": PROGRAMS, "largest_truths": PROGRAMS,
    "edges": PROGRAMS, "picked": PROGRAMS,
    "picked_alone": PROGRAMS, "picked_by_place": PROGRAMS, "picked_in_all": PROGRAMS,
    "pool_max_large": PROGRAMS, "pool_mean_large": PROGRAMS, "padded_rows": PROGRAMS,
}  # fmt: skip
LIGHTER = {
    "both_means": (PROGRAMS["both_means"][0], X[:9, :40]),
    "places_whole": (PROGRAMS["places_whole"][0], torch.arange(300).reshape(4, 75) % 7),
    "tall": (PROGRAMS["tall"][0], normal(900, 3)),
}
"""The interpreter takes a second for what a GPU does in a microsecond."""
IN_EVERY_CHOICE = {
    "pointwise": (PROGRAMS["pointwise"][0], X[:2], Y[:2], normal(1), normal(1)),
    "softmax": (PROGRAMS["softmax"][0], X[:5]),
    "columns": (PROGRAMS["columns"][0], X[:, :70]), "transposed": (PROGRAMS["transposed"][0], X[:, :100], Y.t()[:100]),
    "long_row": PROGRAMS["long_row"],
}  # fmt: skip
ROUNDED = {name: {"rtol": 1e-5, "atol": 1e-4} for name in ("running_mean", "running_window")}
"""torch adds up running sums in float64, which no GPU does."""
ROUNDED["known_powers"] = {"rtol": 2**-22, "atol": 0}


def scans(reverse, columns=100):
    """Running sums and extremes of rows, and what is left of each row's sum."""
    given = {"outer": (Axis(name="i0", size=5),), "row": (Axis(name="r0", size=columns),)}
    place = {"i0": columns, "r0": 1}
    steps = [
        Scan(value=op, op=op, arg="x_in", dtype="float32", reverse=reverse) for op in ("sum", "max", "min", "prod")
    ]
    steps.append(Step(value="more", op="add", args=("sum", 1), dtype="float32"))
    stores = [
        Store(
            value=v, buffer=f"{v}_out", dtype="float32", shape=(5, columns), shape_strides=(columns, 1), strides=place
        )
        for v in ("more", "max", "min", "prod")
    ]
    loads = (Load(value="x_in", buffer="x", dtype="float32", strides=place),)
    return Region(name="scans", loads=loads, steps=tuple(steps), stores=tuple(stores), **given)


def cases():
    """(name, program and the forced choice or the number of an own one)."""
    for name, program in (PROGRAMS | MORE).items():
        yield f"{name}-first", LIGHTER.get(name, program), 0
    for name, program in IN_EVERY_CHOICE.items():
        for pick in (1, 2, 4, 7, 11):
            yield f"{name}-{pick}", program, pick
    for name, programs in FORCED_ON.items():
        for kind, choice in FORCED.items():
            yield f"{name}-{kind}", programs[name], choice
    for name in sorted(WIDE):
        for kind, choice in {"whole": 0, "looped": LOOPED, "split_rows": SPLIT_ROWS}.items():
            yield f"{name}-wide_{kind}", LIGHTER.get(name, (PROGRAMS | MORE)[name]), choice
    for name, program in AGAIN.items():
        for kind, choice in (HELD | JOINED).items():
            told = choice.num_splits == 1 or name != "place_after"  # places are told in no word of 32 bits
            long = choice.BLOCK_N < 256 or name not in ("batch_means", "edges")  # whose rows are one step of 256
            if told and long:
                yield f"{name}-{kind}", program, choice


SCANNED = [f"scans-{way}-{size}" for way in ("forward", "reverse") for size in ("whole", "looped", "looped_rows")]
NAMES = [name for name, _, _ in cases()] + SCANNED
_FAST = {
    f"{name}-first" for name in (*list(MORE)[::2], *list(PROGRAMS)[::6]) if not name.startswith(("uint8_", "int16_"))
}
_FAST |= {
    f"{name}-{kind}" for name in ("extremes_places", "far_norm", "products", "picked", "masked") for kind in FORCED
}
_FAST |= {f"{name}-{kind}" for name in ("half_rows", "far_norm") for kind in HELD | JOINED}
_FAST |= {f"{name}-wide_{kind}" for name in ("softmax", "positions") for kind in ("whole", "looped", "split_rows")}
_FAST |= {f"{name}-{pick}" for name in ("pointwise", "softmax") for pick in (1, 4)} | {*SCANNED}
TIERS = [name if name in _FAST else slow(name) for name in NAMES]
"""In the fast tier: half of what is written for Triton and a sixth of what the C++ path computes too, in the first
choice; the others in a few programs."""


# ---- in the process that interprets


PLANNED = {}


def accumulated_on_gpu(node):
    """`accumulated_dtype` as for a tensor on a GPU."""
    return "float64" if node.args[0].meta["val"].dtype == torch.float64 else "float32"


def planned(program, args):
    """The graph of a program and its regions; captured once for all choices."""
    key = (program, *map(id, args))
    if key not in PLANNED:
        with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(lowering, "variance_dtype", accumulated_on_gpu)
            graph = capture(program, args, {}).graph
            PLANNED[key] = graph, plan_regions(graph)[0]
    return PLANNED[key]


def execute(program, args, pick):
    """What a program gives with its regions as interpreted Triton, outputs poisoned before."""
    graph, regions = planned(program, args)
    assert regions
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
            given = {name: env[by_name[name]] for name in last[node].reads}
            env |= {by_name[name]: value for name, value in call(last[node], given, pick).items()}
        elif node not in inside:
            left, options = (torch.fx.map_arg(a, env.__getitem__) for a in (node.args, node.kwargs))
            env[node] = node.target(*left, **options)
    raise AssertionError("a graph ends with an output")


def call(region, given, pick):
    space = generate_configs(region)
    choice = space[min(pick, len(space) - 1)] if isinstance(pick, int) else pick
    if not region.row and not isinstance(pick, int):
        choice = space[0]
    printed = print_triton(region, choice)
    made = {
        s.buffer: torch.empty_strided(s.shape, s.shape_strides, dtype=getattr(torch, s.dtype)).fill_(77)
        for s in region.stores
    }
    launch = all_met(printed) if choice.grid_sync else getattr(module_of(printed), printed.launcher_name)
    before = {name: value.clone() for name, value in given.items()}
    launch(*given.values(), *made.values())
    assert all(torch.equal(before[name].nan_to_num(), value.nan_to_num()) for name, value in given.items())
    return made


def all_met(printed):
    """A launch in which parts find what all have written down although they run one after another, as the interpreter
    does: they do not wait, and it is done again with the notes that are there, once for each wait and once more."""
    waiting = re.compile(r"    while .*\n        words.*\n")
    assert waiting.search(printed.source) and ".zero_()" in printed.launcher
    helpers = tuple(waiting.sub("", helper) for helper in printed.helpers)
    module = module_of(
        msgspec.structs.replace(printed, helpers=helpers, launcher=printed.launcher.replace(".zero_()", ""))
    )
    workspaces, module.num_sms_of = {}, lambda device: 132
    module.empty_on_device_of = lambda _, shape, strides, dtype: workspaces.setdefault(
        shape, torch.zeros(shape, dtype=dtype)
    )

    def launch(*tensors):
        for _ in range(1 + printed.source.count("wait_partials(")):
            getattr(module, printed.launcher_name)(*tensors)

    return launch


def flat_results(result):
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for part in result for tensor in flat_results(part)]


def compare(program, args, pick, tolerance):
    for got, right in zip(execute(program, args, pick), flat_results(program(*args)), strict=True):
        assert (got.shape, got.dtype) == (right.shape, right.dtype)
        torch.testing.assert_close(got, right, equal_nan=True, **tolerance)


def compare_scans(name):
    _, way, size = name.split("-")
    reverse = way == "reverse"
    x = normal(5, 100)
    x[2, 50] = float("nan")
    pick = {"whole": TritonConfig(BLOCK_M=2, BLOCK_N=128, num_warps=4)} | FORCED
    got = call(scans(reverse), {"x": x}, pick[size])
    flipped = x.flip(-1) if reverse else x
    right = {
        "more_out": flipped.cumsum(-1) + 1, "max_out": flipped.cummax(-1).values, "min_out": flipped.cummin(-1).values,
        "prod_out": flipped.cumprod(-1),
    }  # fmt: skip
    for buffer, tensor in right.items():
        torch.testing.assert_close(got[buffer], tensor.flip(-1) if reverse else tensor, equal_nan=True)


def main(wanted):
    """Runs the wanted cases, all by default."""
    todo = [
        (name, lambda p=program, c=pick, n=name: compare(p[0], p[1:], c, ROUNDED.get(n.split("-")[0], {})))
        for name, program, pick in cases()
    ]
    todo += [(name, lambda n=name: compare_scans(n)) for name in SCANNED]
    report_cases({name: narrow(name, run) for name, run in todo if not wanted or name in wanted})


def narrow(name, run):
    """A case, with the end of int32 that its name tells."""

    def narrowed():
        tile.MAX_INT32_OFFSET = SMALL_INT32 if "-wide" in name else LARGEST_INT32
        run()

    return narrowed


# ---- in the process of the tests


@pytest.fixture(scope="module")
def interpreted(request):
    """What the selected cases gave, all from one process."""
    return interpret(__file__, selected_cases(request, "test_interpreted_kernels_compute_what_torch_does"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TIERS)
def test_interpreted_kernels_compute_what_torch_does(interpreted, name):
    assert not interpreted[name]["fault"]


def planned_region(name):
    program, *args = (PROGRAMS | MORE)[name]
    (_, ((region, _), *_)) = planned(program, args)
    return region


COMPILED = [
    ("softmax", 0), ("softmax", LOOPED_ROWS), ("softmax", SPLIT), ("layer_norm", SPLIT_ROWS), ("columns", 0),
    ("places", SPLIT_ROWS), ("truths", LOOPED), ("products", LOOPED_ROWS), ("double_variance", SPLIT),
    ("transposed", 0), ("divisions", 0), ("whole_divisions", 0), ("bfloat16", 0), ("large_numbers", 0),
    ("double_constants", 0), ("powers_of_bytes", 0), ("rows_of_bytes", LOOPED),
    ("bytes_that_wrap", 0), ("truths_as_numbers", 0), ("largest_truths", LOOPED), ("any_byte", LOOPED),
    ("softmax", MET), ("far_norm", MET), ("far_norm", HELD["met_held"]), ("half_rows", HELD["held"]),
    ("far_norm", JOINED["joined_rows"]), ("known_powers", 0), ("powers_of_rows", LOOPED),
    ("powers_of_rows", LOOPED_ROWS), ("picked", LOOPED), ("picked_columns", 0), ("half_rows", SPLIT_ROWS),
    ("whole_powers", 0), ("picked_alone", LOOPED_ROWS),
    ("uint8_arithmetic", 0), ("int8_arithmetic", 0), ("int16_arithmetic", 0), ("uint8_choices", 0), ("uint8_powers", 0),
    ("int8_powers", 0), ("int8_divisions", 0), ("uint8_folds", LOOPED), ("int16_folds", 0), ("int8_scans", 0),
    ("half_rows", HELD["grouped_ahead"]), ("far_norm", HELD["grouped_ahead"]), ("softmax", HELD["grouped_met"]),
    ("pool_max", 0), ("pool_max_whole", 0), ("pool_mean_large", LOOPED_ROWS), ("pool_padded", 0), ("padded_bytes", 0),
    ("depthwise_volume", 0), ("depthwise_fused", 3), ("depthwise_mean", 0), ("depthwise_half", 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "pick"), fast_where(range(0, 99, 3), COMPILED), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_compiler_takes_what_the_interpreter_takes(name, pick):
    region = planned_region(name)
    kernels = list(compiled(region, generate_configs(region)[pick] if isinstance(pick, int) else pick))
    assert kernels and all(".target sm_90" in kernel.asm["ptx"] for kernel in kernels)


@pytest.mark.parametrize(
    ("size", "order"), [(3, torch.contiguous_format), (7, torch.contiguous_format), (5, torch.channels_last)]
)
def test_depthwise_convolutions_use_no_local_memory(size, order, tmp_path):
    x, w = torch.empty(8, 64, 28, 28, device="meta", memory_format=order), torch.empty(64, 1, size, size, device="meta")

    def program(x, w):
        return F.conv2d(x, w, None, 1, size // 2, 1, 64).relu()

    with torch.no_grad():
        (((region, _),), _) = plan_regions(capture(program, (x, w), {}).graph)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    for choice in generate_configs(region)[:3]:
        for number, kernel in enumerate(compiled(region, choice)):
            path = tmp_path / f"{number}.cubin"
            path.write_bytes(kernel.asm["cubin"])
            usage = subprocess.run([tool, "-res-usage", path], capture_output=True, text=True, check=True).stdout
            assert "STACK:0" in usage and "LOCAL:0" in usage, (choice, usage)


@pytest.mark.parametrize("program", [lambda x: x.softmax(-1), lambda x: x.flip(-1).cumsum(-1).flip(-1)])
@pytest.mark.parametrize("warps", [4, 8])
def test_a_loop_moves_whole_vectors_whichever_way_it_runs(program, warps):
    _, ((region, _), *_) = planned(program, [normal(3, 8192)])
    (kernel,) = compiled(region, TritonConfig(BLOCK_M=1, BLOCK_N=2048, num_warps=warps))
    moves = re.findall(r"(?:ld|st)\.global\S*", kernel.asm["ptx"])
    assert moves and all(".v4." in move for move in moves)


def test_what_no_step_is_held_beside_is_not_read_ahead():
    with torch.no_grad():
        ((region, _),), _ = plan_regions(
            capture(lambda x: x / x.norm(), (torch.empty(10_000_001, device="meta"),), {}).graph
        )
    assert (
        "_prefetched"
        not in print_triton(region, TritonConfig(BLOCK_M=1, BLOCK_N=8192, num_warps=16, num_splits=1221)).kernels
    )


ASKED = {
    "once": (lambda x, w: x.relu(), TritonConfig(BLOCK_M=128, BLOCK_N=1, num_warps=4), ["x last"]),
    "rows held whole": (
        lambda x, w: x.softmax(-1) * w,
        TritonConfig(BLOCK_M=1, BLOCK_N=512, num_warps=4),
        ["x last", "w last"],
    ),
    "nothing written": (lambda x, w: x.sum(-1), TritonConfig(BLOCK_M=1, BLOCK_N=512, num_warps=4), ["x"]),
    "again": (
        lambda x, w: x.softmax(-1) * w,
        TritonConfig(BLOCK_M=1, BLOCK_N=128, num_warps=4),
        ["x last", "x first", "w"],
    ),
    "again in launches": (
        lambda x, w: x.softmax(-1),
        TritonConfig(BLOCK_M=1, BLOCK_N=64, num_warps=2, num_splits=2),
        ["x last"] * 2,
    ),
    "all held": (
        lambda x, w: x.softmax(-1) * w,
        TritonConfig(BLOCK_M=1, BLOCK_N=128, num_warps=4, register_tiles=4),
        ["x last", "w last"],
    ),
    "parts that wait": (
        lambda x, w: x.softmax(-1),
        TritonConfig(BLOCK_M=1, BLOCK_N=64, num_warps=2, num_splits=2, grid_sync=True, register_tiles=1),
        ["x last", "x", "x first"],
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_asks_to_stay_in_the_cache(name):
    program, choice, asked = ASKED[name]
    _, ((region, _), *_) = planned(program, [normal(7, 512), normal(512)])
    text = re.sub(r"\s+", " ", print_triton(region, choice).kernels)
    loads = re.findall(r"tl\.load\( ?(x|w)_ptr ([^)]*)\)", text)
    hints = [" ".join([buffer, *re.findall(r"evict_(\w+)", rest)]) for buffer, rest in loads]
    assert sorted(hints) == sorted(asked)


@pytest.mark.parametrize("exponent", [1 / 2.4, 2.2, -0.75, 3.5, 1e-3])
def test_known_powers_are_as_near_in_what_the_compiler_makes_of_them(exponent):
    import numpy

    _, ((region, _), *_) = planned(lambda x: x**exponent, [X])
    (kernel,) = compiled(region, TritonConfig(BLOCK_M=128, BLOCK_N=1, num_warps=4))
    block = next(part for part in kernel.asm["ptx"].split("$L__") if "fma.rn.f32" in part).splitlines()
    *_, last = [line for line in block if "add.s32" in line]
    x = torch.exp2((torch.rand(2**18, generator=torch.Generator().manual_seed(0)) * 2 - 1) * 120 / max(1, exponent))
    (given,) = {line.split()[2] for line in block if "-1060439283" in line}
    got = evaluated(block, {given.rstrip(","): x.numpy()})[last.split()[1].rstrip(",")].view(numpy.float32)
    right = x.double().numpy() ** exponent
    assert abs((got - right) / right).max() < 2 * 2**-24


@pytest.mark.parametrize("reverse", [False, True])
def test_the_compiler_takes_scans_with_a_carry(reverse):
    assert list(compiled(scans(reverse), LOOPED_ROWS))


def test_no_choice_is_named_twice_and_none_is_too_many():
    for name in ("pointwise", "softmax", "columns", "transposed", "long_row", "long_sums"):
        space = generate_configs(planned_region(name))
        assert 0 < len(space) <= MAX_CONFIGS
        assert len(set(space)) == len(space)


def test_a_sweep_is_saved_where_a_maximum_and_its_exponentials_go_together():
    for name in ("softmax", "layer_norm"):
        assert print_triton(planned_region(name), LOOPED).source.count(" in range(") == 2


@pytest.mark.parametrize("choice", [LOOPED, LOOPED_ROWS, SPLIT, TritonConfig(BLOCK_M=1, BLOCK_N=1024, num_warps=4)])
def test_what_a_row_picks_is_one_load_and_no_comparison_of_each_element(choice):
    source = print_triton(planned_region("cross_entropies"), choice).source
    assert "gather_index" not in source
    assert source.count("_narrow.to(tl.int64)") == 2, "of the logits and of the weights"


def test_exponentials_are_fast_where_nothing_misses_what_they_lose():
    def exponentials(program, dtype):
        _, ((region, _), *_) = planned(program, [SMALL.to(dtype)])
        return re.findall(
            r"(fast_expf|tl\.exp)\((?:x_)?sub\w*\)", print_triton(region, generate_configs(region)[0]).source
        )

    def softmax(x):
        return torch.softmax(x, -1)

    def both_ways(x):
        shares = torch.softmax(x.float(), -1)
        return shares, shares.bfloat16()

    assert exponentials(softmax, torch.bfloat16) == ["fast_expf"]
    assert exponentials(softmax, torch.float32) == ["tl.exp"]
    assert exponentials(lambda x: torch.softmax(x, -1).log(), torch.bfloat16) == ["tl.exp"]
    for turn in (1, -1):
        both = exponentials(lambda x, turn=turn: both_ways(x)[::turn], torch.bfloat16)
        assert both == ["tl.exp"], "the shares are also stored in FP32"
    assert exponentials(lambda x: torch.logsumexp(x, -1), torch.float32) == ["fast_expf"]


def test_what_many_instructions_make_of_a_byte_is_looked_up():
    def gathers(name, choice):
        return re.findall(r"tl.gather\((\w+)_table", print_triton(planned_region(name), choice).source)

    assert gathers("powers_of_bytes", TritonConfig(BLOCK_M=512, BLOCK_N=1, num_warps=4)) == ["clamp_max"]
    assert set(gathers("rows_of_bytes", LOOPED)) == {"log1p", "tanh", "mul"}  # tanh is read beside other numbers too
    assert not gathers("rows_of_bytes", LOOPED_ROWS), "a table can be asked with a line, not with a square"
    assert not gathers("bytes", TritonConfig(BLOCK_M=512, BLOCK_N=1, num_warps=4)), "no more than a few instructions"


def test_a_tile_that_fits_needs_no_mask():
    place = {"i0": 1024, "r0": 1}
    region = Region(
        name="even",
        outer=(Axis(name="i0", size=64),),
        row=(Axis(name="r0", size=1024),),
        loads=(Load(value="x_in", buffer="x", dtype="float32", strides=place),),
        steps=(Step(value="twice", op="mul", args=("x_in", 2), dtype="float32"),),
        stores=(
            Store(value="twice", buffer="y", dtype="float32", shape=(64, 1024), shape_strides=(1024, 1), strides=place),
        ),
    )
    assert "mask" not in print_triton(region, TritonConfig(BLOCK_M=4, BLOCK_N=1024, num_warps=4)).source


def test_only_the_step_in_which_a_row_ends_is_masked():
    for choice, loops in ((LOOPED, 2), (SPLIT, 4), (HELD["held_rows"], 1)):
        inside = re.findall(
            r"^    for (?:start_n|n_done) in .*\n((?:        .*\n)+)",
            print_triton(planned_region("softmax"), choice).source,
            re.M,
        )
        assert len(inside) >= loops
        assert "mask_n" not in inside[0], "a loop over whole steps"


def test_printed_text_is_narrow_and_has_no_dead_lines():
    names = ("far_variance", "softmax", "half_rows", "extremes_places", "statistics")
    for name, choice in [*((name, choice) for name in names for choice in FORCED.values()), ("softmax", MET)]:
        printed = print_triton(planned_region(name), choice)
        lines = (printed.source + printed.launcher).splitlines()
        assert max(map(len, lines)) <= 100
        given = re.findall(r"^ +(\w+)(?:: tl.constexpr)? = ", printed.kernels, re.MULTILINE)
        assert all(len(re.findall(rf"\b{word}\b", printed.kernels)) > 1 for word in given)


def test_what_has_no_form_is_a_misfit():
    region = scans(False)
    step = Step(value="more", op="bessel", args=("sum", 1), dtype="float32")
    with pytest.raises(Unsupported, match="bessel"):
        print_triton(msgspec.structs.replace(region, steps=(*region.steps[:4], step)), LOOPED)
    with pytest.raises(Unsupported, match="scan along a split row"):
        print_triton(region, SPLIT)
    with pytest.raises(Unsupported, match="grid sync with BLOCK_M > 1"):
        print_triton(planned_region("softmax"), msgspec.structs.replace(MET, BLOCK_M=8))
    with pytest.raises(Unsupported, match="needs one pass"):
        print_triton(planned_region("far_variance"), MET)
    for choice in (MET, JOINED["joined"]):
        with pytest.raises(Unsupported, match="32-bit partial results only"):
            print_triton(planned_region("double_variance"), choice)


LONG = {
    "read again": (lambda x: x.softmax(-1), True),
    "in FP64": (lambda x: x.double().softmax(-1), False),
    "a place": (lambda x: (x.softmax(-1), x.argmax(-1)), False),
    "a truth": (lambda x: (x.softmax(-1), (x > 0).any(-1)), False),
    "read once": (lambda x: x.sum(-1), False),
}


@pytest.mark.parametrize(("program", "meets"), [pytest.param(*case, id=name) for name, case in LONG.items()])
def test_parts_meet_where_something_is_read_again_and_a_word_is_enough(program, meets):
    with torch.no_grad():
        ((region, _), *_), _ = plan_regions(capture(program, (torch.empty(300, 100_000, device="meta"),), {}).graph)
    space = generate_configs(region)
    assert any(choice.grid_sync for choice in space) == meets
    assert any(choice.register_tiles for choice in space) == (program is not LONG["read once"][0])
    assert not space[0].grid_sync  # that is taken untried by who has no time
    for choice in space:
        assert print_triton(region, choice)


@pytest.mark.parametrize(
    ("shape", "axis", "meets"), [((300, 2**21), 1, True), ((300, 2**22), 1, False), ((2**21, 300), 0, False)]
)
def test_so_few_parts_wait_that_four_streams_of_an_h100_may(shape, axis, meets):
    with torch.no_grad():
        given = (torch.empty(shape, device="meta"),)
        ((region, _), *_), _ = plan_regions(capture(lambda x: x.softmax(axis), given, {}).graph)
    most = [choice.num_splits for choice in generate_configs(region) if choice.grid_sync]
    assert bool(most) == meets
    assert max(most, default=0) <= 132 // 4


@pytest.mark.parametrize(
    ("program", "joins"),
    [(lambda x: x.softmax(0), True), (lambda x: x.double().softmax(0), False), (lambda x: x.sum(0), False)],
)
def test_long_columns_that_are_read_again_are_put_together_once(program, joins):
    with torch.no_grad():
        ((region, _), *_), _ = plan_regions(capture(program, (torch.empty(100_000, 300, device="meta"),), {}).graph)
    joined = [print_triton(region, choice) for choice in generate_configs(region) if choice.combine_kernel]
    assert bool(joined) == joins
    assert all([name.count("combine") for name in one.kernel_names] == [0, 1, 0] for one in joined)


@pytest.mark.parametrize(
    ("program", "size", "parts", "launches"),
    [
        (lambda x: x.square().mean(), 2**30, 2**14, 2),
        (lambda x: x / x.norm(), 7 * 2**28, 7 * 2**12, 3),  # put together by a launch of its own
        (lambda x: x.double().sum(), 2**40, 2**15, 2),
        (lambda x: x / x.double().sum(), 2**30, 0, 0),  # which is told in no word of 32 bits
        (lambda x: x.square().mean(), 2**26, 0, 0),
    ],
)
def test_one_row_of_very_many_elements_is_also_offered_in_fine_parts(program, size, parts, launches):
    with torch.no_grad():
        ((region, _), *_), _ = plan_regions(capture(program, (torch.empty(size, device="meta"),), {}).graph)
    fine = [choice for choice in generate_configs(region) if choice.num_splits > 2048]
    assert [choice.num_splits for choice in fine] == [parts] * bool(parts)
    assert [len(print_triton(region, choice).kernel_names) for choice in fine] == [launches] * bool(parts)


@pytest.mark.parametrize("program", [lambda x: x.flip(0, 1).sum(-1), lambda x: x.softmax(-1), lambda x: x.sum()])
def test_offsets_beyond_int32_are_wider_whichever_way_they_run(program):
    with torch.no_grad():
        given = (torch.empty(2**12, 2**20, device="meta"),)
        ((region, _), *_), _ = plan_regions(capture(program, given, {}).graph)
    assert all(".to(tl.int64)" in print_triton(region, choice).source for choice in generate_configs(region))


def test_ways_that_are_asked_for_stand_beside_what_is_offered():
    with torch.no_grad():
        ((region, _),), _ = plan_regions(
            capture(lambda x: x.softmax(-1), (torch.empty(300, 10**5, device="meta"),), {}).graph
        )
    found = ways(
        region, ["BLOCK_N=4096 num_warps=16 register_tiles=8 size=50000", "BLOCK_N=4096 num_warps=16 size=100000"]
    )
    met = TritonConfig(BLOCK_M=1, BLOCK_N=4096, num_warps=16, register_tiles=8, num_splits=2, grid_sync=True)
    assert [*found.values()] == [*generate_configs(region), met], "of the other a row is one part"


def test_a_long_argument_may_be_called_as_anything():
    def softmax_of(workspace):
        return workspace.softmax(-1)

    ((region, _),) = planned(softmax_of, (SMALL,))[1]
    printed = print_triton(region, MET)
    assert module_of(printed, library=False)
    assert len(re.findall(r"\bworkspace_ptr\b", printed.kernels.split(")")[0])) == 1


def test_a_kernel_takes_the_tensors_that_it_reads_and_writes_and_no_others():
    with torch.no_grad():
        ((region, _),), _ = plan_regions(capture(lambda x: x.amax(-1), (SMALL,), {}).graph)
    heads = re.findall(r"def (\w+)\((.*?)\):", print_triton(region, SPLIT_ROWS).kernels)
    assert dict(heads) == {
        "region_0_pass_1_kernel": "x_ptr, amax_partials_ptr",
        "region_0_pass_2_kernel": "amax_ptr, amax_partials_ptr",
    }


if __name__ == "__main__":
    main(sys.argv[1:])
