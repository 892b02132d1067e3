"""The records of contractions: what their epilogues may index, and what they move."""

from math import prod

import msgspec
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import Contraction, ContractionRegion, Filters, Matrix, Windows
from kernelwright.compiler.regions.region import Axis, Load, Region, Step, Store

LEFT = Matrix(buffer="a", dtype="float32", batch_stride=0, row_stride=8, k_stride=1)
RIGHT = Matrix(buffer="b", dtype="float32", batch_stride=0, row_stride=1, k_stride=12)


def product(m=20, n=12, batch=1, **changed):
    fields = {"value": "mm", "dtype": "float32", "batch": batch, "m": m, "n": n, "k": 8, "left": LEFT, "right": RIGHT}
    return Contraction(**fields | changed)


def fused(one, sizes, strides, offset=0, row=()):
    """A contraction and the copy of its result, seen along axes of these sizes and strides."""
    axes = tuple(Axis(name=f"i{at}", size=size) for at, size in enumerate(sizes))
    along = {axis.name: stride for axis, stride in zip(axes, strides, strict=True)}
    load = Load(value="mm_in", buffer="mm", dtype="float32", strides=along, offset=offset)
    shape = (prod(sizes),)
    store = Store(value="mm_in", buffer="out", dtype="float32", shape=shape, shape_strides=(1,), strides=along)
    epilogue = Region(name="region_0", outer=axes, row=row, loads=(load,), steps=(), stores=(store,))
    return ContractionRegion(name="region_0", contraction=one, epilogue=epilogue)


def value_of(index, rows, columns):
    """An `AxisIndex` as its docstring defines it."""
    row = rows // index.row_divisor if index.row_factor == -1 else rows * index.row_factor
    column = columns // index.column_divisor if index.column_divisor else 0
    return (row + column) % index.modulus if index.modulus else row + column


@st.composite
def views(draw):
    """Sizes of a result, and sizes of axes into which its elements are grouped, in any order."""
    batch, m, n = draw(st.integers(1, 3)), draw(st.integers(1, 12)), draw(st.integers(2, 12))
    rest, sizes = batch * m * n, []
    while rest > 1:
        sizes.append(draw(st.sampled_from([size for size in range(2, rest + 1) if rest % size == 0])))
        rest //= sizes[-1]
    return batch, m, n, sizes, draw(st.permutations(range(len(sizes))))


@settings(max_examples=200, deadline=None)
@given(views())
def test_the_index_along_every_axis_is_that_of_the_element(view):
    batch, m, n, sizes, order = view
    strides = [prod(sizes[:at]) for at in range(len(sizes))]
    sizes, strides = [sizes[at] for at in order], [strides[at] for at in order]
    region = fused(product(m, n, batch), sizes, strides)
    try:
        indices = region.indices
    except Unsupported:
        assert any(stride % n and n % stride for stride in strides), "an axis that ends within rows, not all alike"
        return
    flat = torch.arange(batch * m * n)
    rows, columns = flat // n, flat % n
    for at, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        assert torch.equal(value_of(indices[f"i{at}"], rows, columns).long(), flat // stride % size)


def test_rows_and_columns_are_indices_of_their_own():
    indices = fused(product(), (20, 12), (12, 1)).indices
    assert (indices["i0"].row_factor, indices["i0"].column_divisor) == (-1, 0)
    assert (indices["i1"].row_factor, indices["i1"].column_divisor) == (0, 1)


REFUSED = {
    "a part": ((10, 12), (12, 1), 0, "over a part"),
    "every other column": ((20, 6), (12, 2), 0, "repeats, or does not read all"),
    "twice": ((2, 20, 12), (0, 12, 1), 0, "repeats"),
    "from the second row": ((20, 12), (12, 1), 12, "not elementwise"),
    "across rows": ((30, 8), (8, 1), 0, "do not divide the rows"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_epilogue_reads_each_element_once(what):
    sizes, strides, offset, reason = REFUSED[what]
    with pytest.raises(Unsupported, match=reason):
        _ = fused(product(), sizes, strides, offset).indices


def test_an_epilogue_has_no_rows():
    with pytest.raises(Unsupported, match="not elementwise"):
        _ = fused(product(), (20, 12), (12, 1), row=(Axis(name="r0", size=3),)).indices


def test_a_contraction_reads_its_operands_and_what_its_epilogue_reads():
    region = fused(product(bias=("c", "float32")), (20, 12), (12, 1))
    residual = Load(value="d_in", buffer="d", dtype="float16", strides={"i0": 12, "i1": 1})
    epilogue = msgspec.structs.replace(region.epilogue, loads=(*region.epilogue.loads, residual))
    region = msgspec.structs.replace(region, epilogue=epilogue)
    assert region.reads == ["a", "b", "c", "d"]
    assert region.writes == ["out"]
    assert region.bytes_moved == (4 * (20 * 8 + 8 * 12) + 2 * 240, 4 * 240)
    assert [step.op for step in region.steps] == ["matmul"]
    assert region.contraction.flops == 2 * 20 * 12 * 8
    assert "1 x 20 x 12 over 8" in str(region)
    assert (region.num_rows, region.row_size, region.row) == (240, 1, ())


def test_one_tensor_may_be_both_operands():
    square = product(12, 12, left=LEFT, right=msgspec.structs.replace(LEFT, row_stride=1, k_stride=8))
    assert fused(square, (12, 12), (12, 1)).reads == ["a"]


def convolution(**changed):
    filters = Filters(
        buffer="w", dtype="float32", row_stride=27, channel_stride=9, kernel_size=(3, 3), first=((0,), (0,)),
        tap_step=(1, 1),
    )  # fmt: skip
    fields = {
        "buffer": "x", "dtype": "float32", "channels": 3, "image_size": (6, 7), "image_strides": (7, 1),
        "batch_stride": 126, "channel_stride": 42, "phase_taps": ((3,), (3,)), "output_size": (4, 5), "step": (1, 1),
        "start": ((0,), (0,)), "dilation": (1, 1),
    }  # fmt: skip
    windows = Windows(**fields | changed)
    return Contraction(value="mm", dtype="float32", batch=2, m=4, n=20, k=27, left=filters, right=windows)


def test_images_count_once_although_windows_overlap():
    region = fused(convolution(), (8, 20), (20, 1))
    assert region.bytes_moved == (4 * (4 * 27 + 2 * 3 * 42), 4 * 160)
    assert [step.op for step in region.steps] == ["convolution"]


@given(
    size=st.integers(1, 9), step=st.integers(1, 3), dilation=st.integers(1, 3),
    phases=st.lists(st.tuples(st.integers(-4, 3), st.integers(0, 4)), min_size=1, max_size=3),
    outputs=st.integers(1, 9),
)  # fmt: skip
def test_margins_hold_every_position_that_a_window_reads(size, step, dilation, phases, outputs):
    starts, taps = zip(*phases, strict=True)
    assume(outputs >= len(starts) and any(taps))
    windows = convolution(
        image_size=(size, 1), phase_taps=(taps, (1,)), step=(step, 1), dilation=(dilation, 1),
        start=(starts, (0,)), output_size=(outputs, 1),
    ).right  # fmt: skip
    assert isinstance(windows, Windows)
    before, after = windows.margins[0]
    count = len(starts)
    read = [
        output // count * step + starts[output % count] + tap * dilation
        for output in range(windows.grid[0] * count)
        for tap in range(taps[output % count])
    ]
    assert (before, after) == (max(0, -min(read)), max(0, max(read) - size + 1))


def test_the_products_of_a_convolution_are_those_of_the_taps_of_each_phase():
    one = convolution(phase_taps=((1, 2), (3,)), start=((0, 0), (0,)), output_size=(5, 4))
    assert one.right.uneven_dims == [0]
    assert one.right.taps == (2, 3)
    assert one.flops == 2 * (2 * 3) * one.m * (3 * 1 + 2 * 2) * (4 * 3)


def test_a_step_of_the_epilogue_is_a_step_of_the_region():
    region = fused(product(), (20, 12), (12, 1))
    step = Step(value="relu", op="max", args=("mm_in", 0.0), dtype="float32")
    region = msgspec.structs.replace(region, epilogue=msgspec.structs.replace(region.epilogue, steps=(step,)))
    assert [one.op for one in region.steps] == ["matmul", "max"]
