"""Rows that a cluster of blocks shares: who is shared how, what each source compiles to, and results on the GPU."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tiers import fast_first

sys.path.insert(0, str(Path(__file__).parent.parent))
from on_device import DEVICE, poisoned, random, require_close, rms

from kernelwright.kernels.losses import launcher
from kernelwright.kernels.losses import op as losses
from kernelwright.kernels.losses import reference as loss_reference
from kernelwright.kernels.losses.linear import linear_cross_entropy
from kernelwright.kernels.norms import backward_launcher as norm_backward
from kernelwright.kernels.norms import op as norms
from kernelwright.kernels.norms import reference as norm_reference
from kernelwright.kernels.norms.configs import RESIDUAL_THREADS_PER_SM
from kernelwright.kernels.rows import cluster_launch
from kernelwright.kernels.rows.cluster_launch import (
    MAX_CLUSTER_SIZE,
    MAX_CLUSTER_WARPS,
    MAX_VECS_PER_THREAD,
    MIN_BLOCKS_PER_SM,
    choose_cluster_layout,
    choose_rows_per_cluster,
)
from kernelwright.kernels.rows.launcher import multiprocessors
from kernelwright.kernels.rows.layout import VECTOR_BYTES
from kernelwright.kernels.softmaxes import op as softmaxes
from kernelwright.kernels.softmaxes import reference as softmax_reference
from kernelwright.kernels.softmaxes.configs import TWO_BLOCK_THREADS_PER_SM
from kernelwright.toolchain.sass.disassembly import disassemble

HALVES = torch.bfloat16, torch.float16
SIZES = (2**15, 2**15 + 16, 80016, 2**17, 256512, 2**19)
"""Bytes: the least, one vector more, a last block with less than the others, whole ones, and the longest."""
ROUNDED = {torch.bfloat16: 0.5, torch.float16: 0.5, torch.float32: 4.0}
"""In roundings."""
FEWER_DIGITS = {torch.float16: 2**-13}
"""Below this a result in float16 is rounded to multiples of 2^-24."""
NORM = {"CAST_FIRST": 0, "HAS_WEIGHT": 1}
KERNELS = {
    "softmax": partial(softmaxes._CLUSTER_FORWARD.compile, LOG_SOFTMAX=False, HAS_SCALE=False),
    "log_softmax": partial(softmaxes._CLUSTER_FORWARD.compile, LOG_SOFTMAX=True, HAS_SCALE=False),
    "softmax, its gradient": partial(
        softmaxes._CLUSTER_BACKWARD.compile,
        LOG_SOFTMAX=False,
        HAS_SCALE=True,
        MAX_THREADS_PER_SM=TWO_BLOCK_THREADS_PER_SM,
    ),
    "rms_norm": partial(
        norms._CLUSTER_FORWARD.compile, SUBTRACT_MEAN=0, HAS_RESIDUAL=0, HAS_BIAS=0, HAS_WEIGHT_OFFSET=0, **NORM
    ),
    "layer_norm": partial(
        norms._CLUSTER_FORWARD.compile,
        SUBTRACT_MEAN=1,
        CAST_FIRST=0,
        HAS_RESIDUAL=1,
        HAS_WEIGHT=1,
        HAS_BIAS=1,
        HAS_WEIGHT_OFFSET=0,
        MAX_THREADS_PER_SM=RESIDUAL_THREADS_PER_SM,
    ),
    "norm, its gradient": partial(
        norm_backward._CLUSTER_BACKWARD.compile,
        **dict.fromkeys(("SUBTRACT_MEAN", "CAST_FIRST", "HAS_WEIGHT", "HAS_RESIDUAL", "WANTS_WEIGHT", "WANTS_BIAS"), 1),
        MAX_THREADS_PER_SM=512,
    ),
    "cross_entropy": partial(launcher._CLUSTER_FORWARD.compile, HAS_LABEL_SMOOTHING=True, SEPARATE_TARGET_GRAD=False),
    "cross_entropy, in place": partial(
        launcher._CLUSTER_GRADIENT.compile, HAS_LABEL_SMOOTHING=False, SEPARATE_TARGET_GRAD=False
    ),
    "cross_entropy, smoothed in place": partial(
        launcher._CLUSTER_GRADIENT.compile, HAS_LABEL_SMOOTHING=True, SEPARATE_TARGET_GRAD=True
    ),
}

TWO = "softmax, its gradient", "layer_norm", "norm, its gradient"
"""Hold two tensors: a norm that of its residual."""

SPILLED = {
    **{("softmax, its gradient", dtype): 16 for dtype in (*HALVES, torch.float32)},
    **{("cross_entropy, smoothed in place", dtype): 6 for dtype in HALVES},
    ("layer_norm", torch.float16): 20,
}
"""Words, where more than two: for a second block of 16 warps, or for what smoothing adds up around."""


@pytest.mark.parametrize("operands", [1, 2])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_every_row_from_32_kilobytes_to_half_a_megabyte_is_shared_whole(itemsize, operands):
    held = 32 * VECTOR_BYTES * MAX_VECS_PER_THREAD // operands
    for size in range(2**15, 2**19 // operands + 1, 16 * 97):
        found = choose_cluster_layout(size // itemsize, itemsize, operands)
        assert found and 2 <= found.cluster_size <= MAX_CLUSTER_SIZE and found.num_warps <= MAX_CLUSTER_WARPS
        assert found.cluster_size * found.num_warps * held >= size > (found.cluster_size - 1) * found.num_warps * held
    assert choose_cluster_layout(2**19 // operands // itemsize + 16, itemsize, operands) is None


@pytest.mark.parametrize("N", [16376, 16385, 16388, 262152, 2**20], ids=str)
def test_what_is_short_or_odd_or_endless_is_not(N):
    assert choose_cluster_layout(N, 2) is None


@pytest.mark.parametrize("dtype", fast_first(1, [*HALVES, torch.float32]), ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_each_compiles_and_spills_next_to_nothing(kernel, dtype):
    pytest.importorskip("cuda.core")
    N, operands = 2**18 // dtype.itemsize, 2 if kernel in TWO else 1
    cubin = KERNELS[kernel]("sm_90a", choose_cluster_layout(N, dtype.itemsize, operands), N, dtype)
    for name, lines in disassemble(cubin.code).items():
        if name.endswith("backward" if "its gradient" in kernel else "gradient" if "in place" in kernel else "forward"):
            opcodes = [line.opcode for line in lines]
            assert [line.base_opcode for line in lines].count("STL") <= SPILLED.get((kernel, dtype), 2), (
                f"{name} spills"
            )
            assert opcodes.count("CCTL.IVALL") <= 1, f"{name} empties the L1 more than once"
            touching = [at for at, one in enumerate(opcodes) if one.startswith(("LDG", "STG"))]
            assert opcodes.index("ACQBULK") < min(touching), f"{name} reads before others have written"


def test_rows_with_two_tensors_in_common_share_a_cluster_where_there_are_many():
    layout = choose_cluster_layout(65536, 2)
    assert [choose_rows_per_cluster(M, layout, 2, 132) for M in (1, 64, 1200, 8192)] == [1, 1, 2, 4]
    assert choose_rows_per_cluster(8192, layout, 1, 132) == 1


@pytest.mark.gpu
class TestOnTheGpu:
    @pytest.fixture(autouse=True)
    def shared(self, monkeypatch):
        """What is launched on clusters."""
        torch.manual_seed(0)
        seen, load = [], cluster_launch._load_kernel
        monkeypatch.setattr(cluster_launch, "_load_kernel", lambda *given: seen.append(given[1]) or load(*given))
        return seen

    @pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
    @pytest.mark.parametrize("size", SIZES)
    def test_softmax(self, shared, size, dtype):
        N = size // dtype.itemsize
        x, dy = random(3, N, dtype=dtype, scale=3, grad=True), random(3, N, dtype=dtype)
        for ours, log in ((softmaxes.softmax, False), (softmaxes.log_softmax, True)):
            got = poisoned(lambda ours=ours: ours(x, scale=0.7))
            wide = x.detach().double().requires_grad_()
            want = softmax_reference.softmax(wide, scale=0.7, log=log)
            require_close(got.detach(), want.detach(), budget=ROUNDED[dtype], terms=FEWER_DIGITS.get(dtype, 0.0))
            (dx,) = torch.autograd.grad(got, x, dy)
            (wanted,) = torch.autograd.grad(want, wide, dy.double())
            require_close(dx, wanted, budget=16, terms=1.0 / N)
        assert shared == (["softmax_forward", "softmax_backward"] if size <= 2**18 else ["softmax_forward"]) * 2

    @pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
    @pytest.mark.parametrize("size", SIZES)
    def test_norms(self, shared, size, dtype):
        N = size // dtype.itemsize
        x, residual = random(3, N, dtype=dtype, shift=9), random(3, N, dtype=dtype)
        weight, bias = random(N, dtype=dtype), random(N, dtype=dtype)
        got = poisoned(lambda: norms.rms_norm(x, weight, offset=1.0))
        require_close(got, norm_reference.norm(x, weight, eps=1e-6, offset=1.0), budget=ROUNDED[dtype])
        got, total = poisoned(lambda: norms.layer_norm(x, weight, bias, residual=residual))
        assert torch.equal(total, x + residual)
        require_close(got, norm_reference.norm(total, weight, bias, eps=1e-5, centred=True), budget=ROUNDED[dtype])
        require_close(norms.rms_norm(x), norm_reference.norm(x, eps=1e-6), budget=ROUNDED[dtype])
        once = norm_reference.norm(x, eps=1e-6).to(dtype)
        require_close(norms.rms_norm(x, weight, cast_first=True), once.double() * weight, budget=2 * ROUNDED[dtype])
        assert len(shared) == (4 if size <= 2**18 else 3), "two tensors of the longest rows do not fit"

    def test_an_outlier_costs_no_accuracy(self, shared):
        for columns in (0, 7, -1, slice(2), slice(4), slice(32)):
            x = random(3, 2**16)
            x[:, columns] = 1e4
            want = norm_reference.norm(x, eps=1e-5, centred=True)
            assert rms(norms.layer_norm(x) - want) <= 2 * rms(torch.layer_norm(x, (2**16,)) - want)
        assert set(shared) == {"norm_forward"}

    @pytest.mark.parametrize("added", [False, True], ids=["", "sum"])
    @pytest.mark.parametrize("centred", [False, True], ids=["rms", "layer"])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
    def test_gradients_of_more_rows_than_clusters(self, shared, dtype, centred, added):
        M, N = 4 * multiprocessors(torch.device(DEVICE, 0)) + 1, 2**15 // dtype.itemsize + 16
        x, weight, dy, dsum = (random(*size, dtype=dtype) for size in ((M, N), (N,), (M, N), (M, N)))
        wide = [x.double().requires_grad_(), weight.double().requires_grad_()]
        y = norm_reference.norm(*wide, eps=1e-5, centred=centred, offset=1.0)
        want = torch.autograd.grad(y, wide, dy.double())
        mean = wide[0].mean(-1).float() if centred else x.new_empty(0, dtype=torch.float32)
        spread = wide[0].var(-1, correction=0) if centred else wide[0].square().mean(-1)
        rstd = (spread + 1e-5).rsqrt().float().detach()
        given = dy, dsum if added else None, x, weight, mean.detach(), rstd, 1.0, centred, False, True, centred, True
        dx, dweight, dbias = poisoned(norm_backward.compute_gradients, *given)
        require_close(dx, want[0] + dsum.double() if added else want[0], budget=4)
        require_close(dweight, want[1], budget=64)
        if centred:
            require_close(dbias, dy.double().sum(0), budget=64)
        assert set(shared) == {"norm_backward"}

    def test_the_gradient_of_a_norm_finds_its_statistics(self):
        x, weight = random(5, 40000, grad=True, shift=3), random(40000, grad=True)
        bias, dy = random(40000, grad=True), random(5, 40000)
        got = torch.autograd.grad(norms.layer_norm(x, weight, bias), (x, weight, bias), dy)
        wide = [one.detach().double().requires_grad_() for one in (x, weight, bias)]
        want = torch.autograd.grad(norm_reference.norm(*wide, eps=1e-5, centred=True), wide, dy.double())
        for ours, theirs in zip(got, want, strict=True):
            require_close(ours, theirs, budget=16)

    @pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "z_loss": 1e-3}], ids=str)
    @pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
    @pytest.mark.parametrize("size", SIZES)
    def test_cross_entropy(self, shared, size, dtype, options):
        N = size // dtype.itemsize
        x, dlosses = random(6, N, dtype=dtype, scale=3, shift=100, grad=True), random(6)
        target = torch.tensor([0, N - 1, -100, N // 2, N // 3, N], device=DEVICE)
        wide = x.detach().double().requires_grad_()
        want = loss_reference.cross_entropy(wide[:5], target[:5], reduction="none", **options)
        (wanted,) = torch.autograd.grad(want, wide, dlosses[:5].double())
        got = poisoned(lambda: losses.cross_entropy(x, target, reduction="none", **options))
        require_close(got[:5].detach(), want.detach(), budget=8, terms=1.0)
        (dx,) = torch.autograd.grad(got, x, dlosses)
        require_close(dx[:5], wanted[:5], budget=32, terms=1.0 / N)
        assert (got[5].isnan().item(), dx[5].isnan().all().item()) == (True, True), "a target that is no class"
        assert shared == ["cross_entropy_forward"]

    @pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"z_loss": 1e-3}], ids=str)
    @pytest.mark.parametrize("dtype", [*HALVES, torch.float32], ids=str)
    @pytest.mark.parametrize("size", SIZES)
    def test_cross_entropy_in_place(self, shared, size, dtype, options):
        N = size // dtype.itemsize
        x = random(5, N, dtype=dtype, scale=3)
        target = torch.tensor([0, N - 1, -100, N // 2, N // 3], device=DEVICE)
        wide, logits = x.double().requires_grad_(), x.clone().requires_grad_()
        want = loss_reference.cross_entropy(wide, target, **options)
        (wanted,) = torch.autograd.grad(want, wide)
        got = losses.cross_entropy(logits.view_as(logits), target, inplace=True, **options)
        (dx,) = torch.autograd.grad(got, logits)
        require_close(got.detach(), want.detach(), budget=32)
        require_close(dx, wanted, budget=8, terms=0.01 / N)
        assert shared == ["cross_entropy_gradient"]

    @pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "z_loss": 1e-3}], ids=str)
    def test_linear_cross_entropy(self, shared, options):
        x, weight, target = (
            random(6, 64, grad=True),
            random(40000, 64, grad=True),
            torch.tensor([7, 9, -100, 7, 39999, 0]),
        )
        target = target.to(DEVICE)
        wide = [one.detach().double().requires_grad_() for one in (x, weight)]
        want = loss_reference.cross_entropy(torch.nn.functional.linear(*wide), target, **options)
        got = linear_cross_entropy(x, weight, target, **options)
        for ours, theirs in zip(torch.autograd.grad(got, (x, weight)), torch.autograd.grad(want, wide), strict=True):
            require_close(ours, theirs, budget=64)
        assert shared == ["cross_entropy_gradient"]

    @pytest.mark.parametrize(("N", "dtype"), [(40000, torch.float32), (50304, torch.bfloat16)], ids=str)
    def test_what_is_apart_has_one_writer(self, shared, N, dtype):
        layout, lanes = choose_cluster_layout(N, dtype.itemsize), VECTOR_BYTES // dtype.itemsize
        part = -(-N // lanes // layout.cluster_size) * lanes
        targets = [part * p + by for p in range(1, layout.cluster_size) for by in (-1, 0, 1, lanes, 100)]
        target = torch.tensor(targets, device=DEVICE)
        x = torch.zeros(len(targets), N, dtype=dtype, device=DEVICE).scatter_(1, target[:, None], 9.0)
        p = x.double().softmax(-1)
        want = p.gather(1, target[:, None])[:, 0] - 1
        about, one = losses.LossParams(-100, 0.0, 0.0, 0.0), torch.ones((), device=DEVICE)
        for _ in range(3):
            rows, found, apart = x.clone(), *torch.full((2, len(targets)), torch.nan, device=DEVICE)
            launcher.write_losses_and_gradient(rows, target, None, about, found, one, apart)
            torch.testing.assert_close(apart.double(), want, rtol=1e-4, atol=1e-6)
            require_close(rows, p.scatter(1, target[:, None], 0.0), budget=4)
        assert set(shared) == {"cross_entropy_gradient"}

    def test_a_target_that_is_no_class_gives_not_a_number(self):
        x, target = random(2, 40000), torch.tensor([40000, 3], device=DEVICE)
        assert losses.cross_entropy(x, target, inplace=True).isnan()
        assert x[0].isnan().all() and x[1].isfinite().all()

    def test_what_torch_calls_not_a_number_is_one_here(self, shared):
        x = torch.full((5, 40000), -torch.inf, device=DEVICE)
        x[1], x[2, 5], x[3, :20000], x[4], x[4, 7] = 0.0, torch.inf, 1.0, 0.0, torch.nan
        for ours, theirs in ((softmaxes.softmax, torch.softmax), (softmaxes.log_softmax, torch.log_softmax)):
            torch.testing.assert_close(ours(x), theirs(x, -1), equal_nan=True)
        assert shared

    def test_equal_elements_have_no_variance(self):
        x = torch.full((2, 40000), 12345.678, device=DEVICE)
        assert not norms.layer_norm(x).any()

    def test_rows_at_strides_are_read_as_they_lie(self, shared):
        x = random(4, 3, 90000, dtype=torch.bfloat16)[:, 1:, 8:40008]
        require_close(softmaxes.softmax(x), softmax_reference.softmax(x), budget=0.5)
        assert shared == ["softmax_forward"]

    def test_what_no_vector_can_read_goes_the_other_way(self, shared):
        wide = random(3, 50000, dtype=torch.bfloat16)
        for x in (wide[:, 1:40001], random(3, 40001, dtype=torch.bfloat16), random(3, 40004, dtype=torch.bfloat16)):
            require_close(softmaxes.softmax(x), softmax_reference.softmax(x), budget=0.5)
        weight = random(40000)
        require_close(norms.rms_norm(wide[:, :40000], weight), norm_reference.norm(wide[:, :40000], weight, eps=1e-6))
        assert not shared

    def test_a_cluster_takes_several_rows_and_the_last_one_fewer(self, shared):
        layout, M = choose_cluster_layout(16384, 4), 2 * multiprocessors(random(1).device) * MIN_BLOCKS_PER_SM // 4 + 1
        assert choose_rows_per_cluster(M, layout, 2, multiprocessors(random(1).device)) == 2 and M % 2
        x, weight, bias = random(M, 16384), random(16384), random(16384)
        want = norm_reference.norm(x, weight, bias, eps=1e-5, centred=True)
        require_close(poisoned(lambda: norms.layer_norm(x, weight, bias)), want)
        assert set(shared) == {"norm_forward"}

    def test_numbers_of_any_kind_are_numbers(self, shared):
        x, weight = random(2, 40000), random(40000)
        for one in (2, np.float64(2.0), True):
            require_close(softmaxes.softmax(x, scale=one), softmax_reference.softmax(x, scale=float(one)))
            require_close(norms.rms_norm(x, weight, offset=one), norm_reference.norm(x, weight, eps=1e-6, offset=one))
        target, logits = torch.tensor([1, 2], device=DEVICE), x.clone()
        got = losses.cross_entropy(logits, target, inplace=True, label_smoothing=1, z_loss=1)
        require_close(got, loss_reference.cross_entropy(x, target, label_smoothing=1.0, z_loss=1.0), budget=32)
        assert set(shared) == {"softmax_forward", "norm_forward", "cross_entropy_gradient"}

    def test_results_repeat_in_a_graph_and_beside_it(self):
        x = random(64, 128256, dtype=torch.bfloat16)
        want, graph = softmaxes.softmax(x), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = softmaxes.softmax(x)
        graph.replay()
        assert torch.equal(got, want) and torch.equal(softmaxes.softmax(x), want)

    def test_under_torch_compile(self):
        compiled = torch.compile(lambda x: softmaxes.softmax(x * 2).sum(-1), fullgraph=True)
        x = random(4, 40000)
        torch.testing.assert_close(compiled(x), torch.ones(4, device=DEVICE))
