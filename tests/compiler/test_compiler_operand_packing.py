"""Operands in memory of their own: interpreted, the kernels write every element that the loops read, and what it is."""

import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))  # for this file alone, where it is interpreted
sys.path.insert(0, str(Path(__file__).parent))
from triton_interpreter import interpret, module_of, report_cases, selected_cases

from kernelwright.compiler.regions.contraction import Filters, Matrix, Windows
from kernelwright.compiler.triton.operand_packing import (
    PackedFilters,
    PackedImages,
    PackedLayout,
    SplitMatrix,
    power_of_two,
    round_up,
    select,
    weight_expr,
)

pytest.importorskip("triton")
pytestmark = pytest.mark.xdist_group("triton")
LOST = {3: float("inf"), 5: float("nan"), 7: 2.0**61, 8: 2.0**-61}
"""Values of rows that FP16 cannot hold however it is scaled."""


def run(operand, **inputs):
    """The buffers of an operand after its kernels, NaN or 77 where nothing was written."""
    kernels = operand.kernels("region")
    buffers = {
        name: torch.empty(size, dtype=getattr(torch, dtype)).fill_(float("nan") if "float" in dtype else 77)
        for name, (size, dtype) in operand.buffers.items()
    }
    launchers = [f"{one.name}_run = make_launcher({one.name}, {one.num_programs}, 4)" for one in kernels]
    module = module_of(
        SimpleNamespace(source="\n\n".join(one.source for one in kernels), launcher="\n".join(launchers))
    )
    for one in kernels:
        getattr(module, f"{one.name}_run")(*((inputs | buffers)[name] for name in one.tensors))
    return buffers


# ---- split


def split(x, batch, rows, k, padded_rows, padded_k, **strides):
    matrix = Matrix(buffer="x", dtype="float32", **strides)
    operand = SplitMatrix(
        prefix="left", matrix=matrix, batch=batch, rows=rows, padded_rows=padded_rows, k=k, padded_k=padded_k
    )
    made = run(operand, x=x)
    hi, lo = (made[f"left_{part}"].view(batch, padded_rows, padded_k)[:, :rows] for part in ("hi", "lo"))
    return hi.double(), lo.double(), made["left_scale"].view(batch, padded_rows)[:, :rows].double()


def check_split(x, hi, lo, scale, k):
    """x [batch, rows, k] is the sum of both terms."""
    magnitude = x.double().abs().amax(-1)
    lost = ~((magnitude < 2.0**60) & (magnitude >= 2.0**-59)) & (magnitude != 0)
    assert torch.equal(scale.isnan(), lost)
    held = ~lost
    assert torch.equal(scale[held].log2().frac(), torch.zeros_like(scale[held])), "powers of two"
    largest = hi.abs().amax(-1)[held & (magnitude != 0)]
    assert ((largest >= 2**14) & (largest <= 2**15)).all()
    assert not hi[..., k:][held].any()
    assert not lo[..., k:][held].any()
    rebuilt = (hi + lo / 2048)[..., :k] * scale[..., None]
    error = (rebuilt - x.double()).abs()[held]
    assert (error <= x.double().abs()[held] * 2.0**-22 + magnitude[held][:, None] * 2.0**-49).all()


def split_case(layout):
    batch, rows, k = 2, 21, 40
    x = torch.randn(batch, rows, k, generator=torch.Generator().manual_seed(0))
    x *= torch.exp2(torch.linspace(-15, 15, k))
    x[1, 11] = 0
    x[0, 2] *= 2.0**40
    x[1, 4] *= 2.0**-40
    for row, value in LOST.items():
        x[0, row] = 0
        x[0, row, 17] = value
    stored, strides, offset = {
        "rows": (x, (rows * k, k, 1), 0),
        "columns": (x.transpose(1, 2).contiguous(), (rows * k, 1, rows), 0),
        "flipped": (x.flip(1, 2).contiguous(), (rows * k, -k, -1), rows * k - 1),
    }[layout]
    names = dict(zip(("batch_stride", "row_stride", "k_stride"), strides, strict=True))
    check_split(x, *split(stored, batch, rows, k, 32, 64, offset=offset, **names), k)


# ---- packed


def windows_of(channels, size, taps, dilation=(1, 1), start=((0,), (0,)), dtype="float32", output=None, groups=1):
    pixels = size[0] * size[1]
    output = output or tuple(
        edge - (tap - 1) * far - 2 * at[0] for edge, tap, far, at in zip(size, taps, dilation, start, strict=True)
    )
    return Windows(
        buffer="x", dtype=dtype, channels=channels, image_size=size, image_strides=(size[1], 1),
        batch_stride=channels * pixels, channel_stride=pixels, output_size=output, step=(1, 1), start=start,
        dilation=dilation, groups=groups,
        phase_taps=tuple((tap,) if isinstance(tap, int) else tap for tap in taps),
    )  # fmt: skip


def images_case(channels, start, scaled, batch=5):
    size = (5, 6)
    windows = windows_of(channels, size, (3, 2), start=start, output=(3 - 2 * start[0][0], 5 - 2 * start[1][0]))
    layout = PackedLayout(windows=windows, scaled=scaled)
    x = torch.randn(batch, channels, *size, generator=torch.Generator().manual_seed(channels))
    x[1, -1, 0, 0] = float("inf")
    x[2] *= 2.0**70
    x[3] = 0
    images = PackedImages(prefix="right", layout=layout, batch=batch)
    made = run(images, x=x)
    packed = made["right_packed"]
    (run_size,), (padding,) = layout.runs, layout.paddings
    whole, rest = packed[:-run_size], packed[-run_size:]
    if padding:
        assert not rest.any(), "windows at the end of the last image read zeros"
    (top, bottom), (left, right) = windows.margins
    padded = torch.nn.functional.pad(x, (left, right, top, bottom, 0, layout.channels - channels)).permute(0, 2, 3, 1)
    whole = whole.view(padded.shape)
    if not scaled:
        assert torch.equal(whole, padded)
        return
    scale = made["right_scale"]
    assert scale.isnan().tolist() == [False, True, True, False, False]
    assert whole.isfinite().all(), "an image that is lost is zeros"
    assert not whole[1:4].any()
    held = [0, 4]
    assert ((whole[held].amax((1, 2, 3)) < 2**15) & (whole[held].abs().amax((1, 2, 3)) >= 2**14)).all()
    torch.testing.assert_close(
        whole[held].float() * scale[held][:, None, None, None], padded[held], rtol=2**-11, atol=0
    )


def filters_case(channels, transposed, scaled):
    """Every weight is found where the windows have its tap, in each phase."""
    rows, kernel = 7, (3, 2)
    weight = torch.randn(rows, channels, *kernel, generator=torch.Generator().manual_seed(channels))
    weight[2, 0, 1, 1] = float("nan")
    weight[4] = 0
    first, step, taps, start = ((0,), (0,)), (1, 1), ((3,), (2,)), ((0,), (0,))
    if transposed:  # with stride 2, see `_transposed_taps`
        first, step, taps, start = ((2, 1), (0, 1)), (-2, -2), ((2, 1), (1, 1)), ((-1, 0), (0, 0))
    filters = Filters(
        buffer="w", dtype="float32", row_stride=channels * 6, channel_stride=6, kernel_size=kernel, first=first,
        tap_step=step,
    )  # fmt: skip
    layout = PackedLayout(windows=windows_of(channels, (5, 6), taps, start=start, output=(4, 5)), scaled=scaled)
    made = run(PackedFilters(prefix="left", filters=filters, layout=layout, rows=rows, padded_rows=16), w=weight)
    packed = made["left_packed"].view(len(first[0]), len(first[1]), 16, layout.depth)[:, :, :rows].float()
    if scaled:
        assert made["left_scale"][:rows].isnan().tolist() == [at == 2 for at in range(rows)]
        packed = packed * made["left_scale"][:rows, None]
    held = [at for at in range(rows) if at != 2]
    for outer, inner in product(range(len(first[0])), range(len(first[1]))):
        run_size, padding, run_taps = layout.runs[inner], layout.paddings[inner], layout.run_taps[inner]
        found = packed[outer, inner, held, : taps[0][outer] * run_size].unflatten(-1, (taps[0][outer], run_size))
        assert not found[..., run_size - padding :].any()
        found = found[..., : run_size - padding].unflatten(-1, (run_taps, layout.channels))
        for tap, run_tap in product(range(taps[0][outer]), range(run_taps)):
            expected = torch.zeros(rows, layout.channels)
            expected[:, :channels] = weight[:, :, first[0][outer] + tap * step[0], first[1][inner] + run_tap * step[1]]
            torch.testing.assert_close(found[:, tap, run_tap], expected[held], rtol=2**-11 * scaled, atol=0)


def cases():
    """By name, a function that checks it."""
    for layout in ("rows", "columns", "flipped"):
        yield f"split-{layout}", lambda layout=layout: split_case(layout)
    for channels in (1, 3, 4, 5, 8, 17):
        for scaled in (True, False):
            name = f"{channels}{'-scaled' * scaled}"
            inner, margin = ((0,), (0,)), ((-1,), (-1,))
            start = inner if channels in (1, 5, 8) else margin
            yield f"images-{name}", lambda c=channels, s=start, t=scaled: images_case(c, s, t)
            yield f"filters-{name}", lambda c=channels, t=scaled: filters_case(c, c % 2 == 0, t)


NAMES = [name for name, _ in cases()]


@pytest.fixture(scope="module")
def interpreted(request):
    """What the selected cases gave, all from one process."""
    return interpret(__file__, selected_cases(request, "test_interpreted_packing_is_complete_and_exact"))


@pytest.mark.parametrize("name", NAMES)
def test_interpreted_packing_is_complete_and_exact(interpreted, name):
    assert not interpreted[name]["fault"]


# ---- layouts


@given(
    channels=st.integers(1, 70), taps=st.lists(st.integers(0, 7), min_size=1, max_size=3), outer=st.integers(1, 3),
    dilation=st.integers(1, 2),
)  # fmt: skip
def test_runs_hold_all_taps_in_whole_vectors(channels, taps, outer, dilation):
    assume(any(taps))
    start = ((0,), (0,) * len(taps))
    layout = PackedLayout(
        windows=windows_of(channels, (20, 20), (outer, tuple(taps)), (1, dilation), start, output=(9, 9)), scaled=True
    )
    assert layout.channels >= channels
    assert layout.channels % 4 == 0
    for last, run_taps, run_size, padding in zip(taps, layout.run_taps, layout.runs, layout.paddings, strict=True):
        used = run_taps * layout.channels
        assert run_size % 16 == 0
        assert run_size == used + padding
        assert 0 <= padding < 16 or padding <= used / 8
        assert run_size % 32 == 0 or -used % 32 > used / 8
        if last:
            num_runs = outer * last // run_taps
            assert num_runs * run_size <= layout.depth
            positions = {dim: expr.replace("run", "at") for dim, expr in layout.run_positions(last).items()}
            found = {tuple(eval(expr, {"at": at}) for expr in positions.values()) for at in range(num_runs)}
            assert len(found) == num_runs


def test_fp32_stays_fp32_where_tf32_is_not_permitted():
    windows = windows_of(3, (5, 5), (3, 3))
    assert PackedLayout(windows=windows, scaled=False).dtype == "float32"
    assert PackedLayout(windows=windows, scaled=True).dtype == "float16"
    assert PackedLayout(windows=windows_of(3, (5, 5), (3, 3), dtype="bfloat16"), scaled=False).dtype == "bfloat16"


@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=5))
def test_an_expression_selects_the_value_at_an_index(values):
    tl = SimpleNamespace(where=lambda condition, yes, no: yes if condition else no)
    assert [eval(select("at", values), {"tl": tl, "at": at}) for at in range(len(values))] == values


def test_the_weight_of_a_tap_is_counted_from_the_first_of_its_phase():
    filters = Filters(
        buffer="w", dtype="float32", row_stride=9, channel_stride=9, kernel_size=(5,), first=((4, 5),), tap_step=(-2,)
    )
    assert weight_expr(filters, 0, "phase_0", "tap") == "tl.where(phase_0 == 0, 4, 5) + tap * -2"


def test_sizes_are_rounded_up():
    assert [round_up(size, 16) for size in (1, 16, 17)] == [16, 16, 32]
    assert [power_of_two(size) for size in (1, 2, 3, 8, 9)] == [1, 2, 4, 8, 16]


if __name__ == "__main__":
    report_cases({name: run for name, run in cases() if not sys.argv[1:] or name in sys.argv[1:]})
