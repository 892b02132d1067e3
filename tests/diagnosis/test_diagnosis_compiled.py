"""A program as torch.compile runs it: bytes and FLOPs worked out by hand, dealt out to kernels made by hand."""

import pytest
import torch
from tiers import slow

import kernelwright
from kernelwright.core.errors import ProblemError
from kernelwright.core.machine import Machine, MemoryLevel
from kernelwright.core.work import Operator, ProgramWork, Work
from kernelwright.diagnosis.compiled import (
    PlannedKernel,
    _assign_work,
    _compile_and_record,
    _distribute_bytes,
    _split_at_extern,
    observe_compiled,
)
from kernelwright.measure.kernels import KernelTime
from kernelwright.problems import Problem

CPU = Machine(
    name="made up",
    device="cpu",
    provenance="measured",
    levels=(MemoryLevel(name="DRAM", read_gb_s=10.0, write_gb_s=10.0, copy_gb_s=10.0, triad_gb_s=10.0),),
    matrix_tflop_s={"float32": 0.1},
    vector_tflop_s={"float32": 0.05},
    dispatch_us=1.0,
)
RELU = KernelTime("fused_relu_0", 10.0, is_extern=False)
SUM = KernelTime("fused_sum_1", 30.0, is_extern=False)
MM = KernelTime("mm", 50.0, is_extern=True)
SORT = KernelTime("sort", 50.0, is_extern=True)


def planned(total, written=0, called=False):
    return PlannedKernel(is_extern=called, total_bytes=total, written_bytes=written)


def op(name, kind="pointwise", written=0, known=True, **flops):
    """An operator as the program makes it; `matrix=8` are 8 FLOPs in `matrix/float32`."""
    units = {f"{unit}/float32": count for unit, count in flops.items()}
    return Operator(
        index=0,
        name=name,
        kind=kind,
        flops_known=known,
        work=Work(flops=units, bytes_written=written),
        shapes=f"shapes of {name}",
        module=f"net.{name}",
    )


def program(*operators, coverage=1.0):
    total = sum((o.work for o in operators), Work())
    return ProgramWork(operators=operators, as_written=total, fused=total, coverage=coverage, output_bytes=0)


def bytes_of(items):
    return [(item.total_bytes, item.written_bytes) for item in items]


def flops_of(work):
    return [o.work.flops for o in work.operators]


# ---- Stretches and bytes


def test_a_called_kernel_stands_alone_between_the_stretches_of_others():
    assert _split_at_extern([RELU, SUM, MM, MM, RELU]) == [[RELU, SUM], [MM], [], [MM], [RELU]]
    assert _split_at_extern([]) == [[]]


def test_kernels_that_run_as_planned_move_what_was_planned():
    nodes = [planned(100, 40), planned(900, 300, called=True), planned(60, 20)]
    assert _distribute_bytes([RELU, MM, SUM], nodes) == nodes


def test_two_planned_kernels_that_run_as_one_move_the_bytes_of_both():
    nodes = [planned(100, 40), planned(60, 20), planned(900, 300, called=True)]
    assert bytes_of(_distribute_bytes([RELU, MM], nodes)) == [(160, 60), (900, 300)]


def test_a_planned_kernel_that_runs_as_two_is_dealt_out_by_time():
    # 10 us and 30 us: a quarter and three quarters.
    assert bytes_of(_distribute_bytes([RELU, SUM], [planned(400, 80)])) == [(100, 20), (300, 60)]


def test_a_stretch_that_ran_otherwise_leaves_the_others_alone():
    nodes = [planned(100, 40), planned(60, 20), planned(900, 300, called=True), planned(8, 4)]
    assert bytes_of(_distribute_bytes([RELU, MM, SUM], nodes)) == [(160, 60), (900, 300), (8, 4)]


@pytest.mark.parametrize("times_us", [(1.0, 1.0, 1.0), (0.1, 7.3, 20.9), (0.0, 0.0, 5.0)])
def test_dealing_out_by_time_neither_makes_nor_loses_bytes(times_us):
    kernels = [KernelTime(f"fused_{i}", time_us, is_extern=False) for i, time_us in enumerate(times_us)]
    dealt = _distribute_bytes(kernels, [planned(1000, 250), planned(234, 117)])
    for name, whole in (("total_bytes", 1234), ("written_bytes", 367)):
        assert whole - len(kernels) < sum(getattr(node, name) for node in dealt) <= whole, "rounded down by less than 1"
    assert all(0 <= node.written_bytes <= node.total_bytes for node in dealt)


def test_kernels_beyond_the_plan_move_nothing_that_anybody_told():
    assert bytes_of(_distribute_bytes([RELU, MM, SUM, MM], [planned(100, 40), planned(900, 300, called=True)])) == [
        (100, 40),
        (900, 300),
        (0, 0),
        (0, 0),
    ]


def test_a_plan_that_never_ran_is_left_out():
    # A backward pass that was compiled and not called.
    nodes = [planned(900, 300, called=True), planned(100, 40), planned(800, 200, called=True), planned(60, 20)]
    assert bytes_of(_distribute_bytes([MM, RELU], nodes)) == [(900, 300), (100, 40)]


# ---- FLOPs


def test_a_called_product_has_its_own_flops_and_a_written_kernel_the_rest():
    written = program(op("mm", "matrix", 300, matrix=8000), op("relu", vector=75), op("exp", special=600))
    work = _assign_work(written, [MM, RELU], [planned(900, 300, called=True), planned(600, 300)])
    product, fused = work.operators
    assert (product.kind, product.shapes, product.module) == ("matrix", "shapes of mm", "net.mm")
    assert (fused.kind, fused.shapes, fused.module) == ("other", "", "")
    assert flops_of(work) == [{"matrix/float32": 8000}, {"vector/float32": 75, "special/float32": 600}]
    assert [(o.work.bytes_read, o.work.bytes_written, o.allocated_bytes) for o in work.operators] == [
        (600, 300, 300),
        (300, 300, 300),
    ]
    assert work.as_written == Work(
        flops={"matrix/float32": 8000, "vector/float32": 75, "special/float32": 600}, bytes_read=900, bytes_written=600
    )
    assert (work.fused, work.coverage) == (written.fused, 1.0)


def test_the_rest_is_spread_by_bytes_over_the_kernels_that_were_written():
    written = program(op("mm", "matrix", 300, matrix=8000), op("relu", vector=100))
    nodes = [planned(100, 50), planned(900, 300, called=True), planned(300, 10)]
    assert flops_of(_assign_work(written, [RELU, MM, SUM], nodes)) == [
        {"vector/float32": 25},
        {"matrix/float32": 8000},
        {"vector/float32": 75},
    ]


def test_each_product_has_the_flops_of_its_turn():
    written = program(op("mm", "matrix", 300, matrix=1), op("relu", vector=8), op("mm", "matrix", 300, matrix=2))
    nodes = [planned(900, 300, called=True), planned(600, 300), planned(900, 300, called=True)]
    assert flops_of(_assign_work(written, [MM, RELU, MM], nodes)) == [
        {"matrix/float32": 1},
        {"vector/float32": 8},
        {"matrix/float32": 2},
    ]


def test_a_bias_that_is_counted_with_its_product_is_not_spread_again():
    written = program(op("addmm", "matrix", 300, matrix=8000, vector=75), op("relu", vector=75))
    called = KernelTime("addmm", 50.0, is_extern=True)
    assert flops_of(_assign_work(written, [called, RELU], [planned(900, 300, called=True), planned(600, 300)])) == [
        {"matrix/float32": 8000, "vector/float32": 75},
        {"vector/float32": 75},
    ]


def test_a_product_that_inductor_calls_by_another_name_is_the_same_product():
    # x @ w + b, written as two operators, is called as one.
    written = program(op("mm", "matrix", 300, matrix=8000), op("add", vector=75))
    work = _assign_work(written, [KernelTime("addmm", 50.0, is_extern=True)], [planned(900, 300, called=True)])
    assert flops_of(work) == [{"matrix/float32": 8000, "vector/float32": 75}]


@pytest.mark.parametrize("name", ["randint", "sort", "mylib::scale", "scale_kernel_0"])
def test_a_called_kernel_that_is_no_product_takes_no_products_flops(name):
    # Dropout asks the library for its seed before the product.
    written = program(op("mm", "matrix", 300, matrix=8000), op("relu", vector=75))
    kernels = [KernelTime(name, 1.0, is_extern=True), MM, RELU]
    nodes = [planned(8, 8, called=True), planned(900, 300, called=True), planned(600, 300)]
    assert flops_of(_assign_work(written, kernels, nodes)) == [{}, {"matrix/float32": 8000}, {"vector/float32": 75}]


def test_a_called_operator_that_is_no_product_has_its_own_flops_too():
    written = program(op("relu", vector=75), op("sort", "other", 400, vector=9000))
    work = _assign_work(written, [RELU, SORT], [planned(800, 400), planned(800, 400, called=True)])
    assert flops_of(work) == [{"vector/float32": 75}, {"vector/float32": 9000}]


def test_a_product_that_inductor_writes_itself_belongs_to_a_written_kernel():
    # x @ v becomes a sum inside a fused kernel; the product that is called writes 4,096 bytes, and so does x @ w.
    written = program(op("mv", "matrix", 256, matrix=4096), op("mm", "matrix", 4096, matrix=65536))
    work = _assign_work(written, [RELU, MM], [planned(8576, 256), planned(14340, 4096, called=True)])
    assert flops_of(work) == [{"matrix/float32": 4096}, {"matrix/float32": 65536}]


def test_attention_is_found_under_the_name_of_the_librarys_kernel():
    written = program(op("mm", "matrix", 64, matrix=5), op("scaled_dot_product_attention", "attention", 64, matrix=7))
    attention = KernelTime("_scaled_dot_product_flash_attention_for_cpu", 9.0, is_extern=True)
    work = _assign_work(written, [attention, MM], [planned(256, 64, called=True), planned(128, 64, called=True)])
    assert [(o.kind, o.work.flops) for o in work.operators] == [
        ("attention", {"matrix/float32": 7}),
        ("matrix", {"matrix/float32": 5}),
    ]


def test_an_operator_without_a_formula_stays_unknown():
    written = program(op("relu", vector=75), op("mylib.scale", "other", 400, known=False), coverage=0.5)
    work = _assign_work(
        written,
        [RELU, KernelTime("mylib::scale", 5.0, is_extern=True)],
        [planned(800, 400), planned(800, 400, called=True)],
    )
    assert [o.flops_known for o in work.operators] == [True, False]
    assert work.coverage == 0.5


def test_a_kernel_of_which_nothing_was_told_is_not_known():
    # 10 us of 60 us were planned; the product ran without Inductor's saying what it moves.
    written = program(op("relu", vector=75), op("mm", "matrix", 300, matrix=8000))
    work = _assign_work(written, [RELU, MM], [planned(800, 400)])
    assert [o.flops_known for o in work.operators] == [True, False]
    assert work.coverage == pytest.approx(10 / 60)


# ---- What Inductor tells of its plan


def softmax(x):
    return x.softmax(-1)


def added_in_place(x, y):
    return x.add_(y) * 2


def sorted_plus_one(x):
    return x.sort()[0] + 1


def side_by_side(x, w, v):
    return torch.cat([x @ w, x @ v])


@pytest.mark.parametrize(
    ("function", "shapes", "nodes"),
    [
        # 512 x 512 floats of 4 bytes: read once, written once, whatever is kept of rows between.
        slow((softmax, [(512, 512)], [planned(2 * 2**20, 2**20)])),
        # 4,000 bytes each: x and y are read, x and the result written.
        pytest.param(added_in_place, [(1000,), (1000,)], [planned(16_000, 8_000)], marks=pytest.mark.exhaustive),
        # The library returns values and indices; only the 4,000 bytes of values are used.
        pytest.param(
            sorted_plus_one,
            [(1000,)],
            [planned(8_000, 4_000, called=True), planned(8_000, 4_000)],
            marks=pytest.mark.exhaustive,
        ),
        # (64, 32) by (32, 16): 8,192 + 2,048 bytes read and 4,096 written, where the cat wants them.
        (side_by_side, [(64, 32), (32, 16), (32, 16)], [planned(14_336, 4_096, called=True)] * 2),
    ],
    ids=["softmax", "in place", "several results", "cat in place"],
)
def test_the_plan_names_the_bytes_of_what_will_run(function, shapes, nodes):
    _, found = _compile_and_record(function, ([torch.randn(shape) for shape in shapes], {}))
    assert found == nodes


# ---- Programs that cannot be read


@torch.library.custom_op("kernelwright_tests::unfakable", mutates_args=())
def unfakable(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@unfakable.register_fake
def _(x):
    raise ValueError("no shapes without values")


def read(function, *args):
    return observe_compiled(Problem.from_callable(function, *args), CPU, "cpu", 60.0)


def test_a_program_that_the_compiler_refuses_is_a_problem():
    with pytest.raises(ProblemError, match=r"(?s)torch.compile failed on .*no shapes without values") as fault:
        read(lambda x: unfakable(x) * 2, torch.ones(8))
    assert fault.value.next == "omit --compile"


def test_a_program_that_leaves_no_kernel_names_the_next_step():
    with pytest.raises(ProblemError, match="no kernel of its own") as fault:
        read(lambda x: x.view(-1), torch.ones(8, 8))
    assert fault.value.next == "omit --compile"


def test_a_program_that_raises_is_a_problem_and_not_our_own_bug():
    with pytest.raises(ProblemError, match=r"the program raised RuntimeError: .*cannot be multiplied") as fault:
        read(lambda x: x @ x, torch.ones(3, 4))
    assert "test_diagnosis_compiled.py" in fault.value.where


# ---- From end to end


def layer(x, w, b):
    return (x @ w + b).relu()


@pytest.mark.slow
def test_a_small_program_is_read_kernel_by_kernel():
    found = kernelwright.why(layer, torch.randn(256, 128), torch.randn(128, 64), torch.randn(64), compiled=True)
    product, fused = found.operators
    # Bytes: x, w and b read, (256, 64) written. FLOPs: two for each multiply-add.
    assert (product.name, product.kind, product.flops) == ("addmm", "matrix", 2 * 256 * 128 * 64)
    assert product.bytes == 4 * (256 * 128 + 128 * 64 + 64 + 256 * 64)
    # In place: what the product wrote is read and written. FLOPs: relu's, and the bias's, an operator of its own.
    assert (fused.name, fused.flops) == ("fused_relu_0", 2 * 256 * 64)
    assert fused.bytes == 2 * 4 * 256 * 64
    assert found.work.bytes_as_written == product.bytes + fused.bytes
    assert found.work.bytes_fused == product.bytes
    assert (found.problem, found.coverage) == ("layer, compiled", 1.0)
    assert 0 < product.time_us + fused.time_us <= found.time_us * (1 + 1e-9)
    text = str(found)
    for word in ("(x @ w + b).relu(), compiled", "addmm", "fused_relu_0", found.regime):
        assert word in text


@pytest.mark.slow
def test_the_kernels_of_a_graph_that_runs_again_are_not_known():
    # The graph break has `layer` compiled once and run three times: of two runs nothing was told.
    def three_times(x, w, b):
        for _ in range(3):
            x = layer(x, w, b)
            torch._dynamo.graph_break()
        return x

    seen = read(three_times, torch.randn(64, 64), torch.randn(64, 64), torch.randn(64))
    assert [call.regime == "undetermined" for call in seen.operators] == [False, False, True, True, True, True]
    assert seen.work.coverage < 1
