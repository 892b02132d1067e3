"""Matrix products: values against FP64, every layout and epilogue, gradients, wrong arguments, choice of tiles."""

import itertools
import json
import random
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from kernelwright.core.errors import DeviceError, UsageError
from kernelwright.kernels.matmul import product
from kernelwright.kernels.matmul.configs import MAX_SHARED_BYTES, GemmConfig, Variant
from kernelwright.kernels.matmul.launch import compile_product
from kernelwright.kernels.matmul.op import gemm, linear
from kernelwright.kernels.matmul.operands import is_readable, padded_pitch, prepare_operand
from kernelwright.kernels.matmul.recorded import PACKAGED, find_recorded
from kernelwright.kernels.matmul.row_statistics import gemm_with_row_statistics
from kernelwright.kernels.matmul.selection import (
    FP8_TILES,
    SPLIT_TILE,
    TILES,
    choose_config,
    choose_emulated,
    emulation_pays,
)
from kernelwright.kernels.operators import ShapeError
from kernelwright.toolchain.sass.disassembly import disassemble

BF16 = Variant("bf16", "bf16", "bf16", "bf16")
FP32_TERMS = Variant("f16", "f16", "f32", "f32", scales=True)
IN_LOOP = GemmConfig(128, 128, 3, 2, terms=2, promote_tiles=1, swapped=True, split_in_loop=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCE = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2e-6}
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
gpu = pytest.mark.gpu


@pytest.fixture(autouse=True)
def emulate_all(monkeypatch):
    """FP32 products of all sizes take the kernel."""
    monkeypatch.setattr(product, "emulation_pays", lambda *_, **__: True)


def strided(rows, columns, layout, dtype):
    """Random values in a layout: rows or columns contiguous, a pitch that TMA cannot address, or gaps."""
    match layout:
        case "rows":
            return torch.randn(rows, columns, device=DEVICE).to(dtype)
        case "columns":
            return torch.randn(columns, rows, device=DEVICE).to(dtype).T
        case "odd pitch":
            return torch.randn(rows, columns + 3, device=DEVICE).to(dtype)[:, 1 : columns + 1]
        case "gaps":
            return torch.randn(2 * rows, 2 * columns, device=DEVICE).to(dtype)[::2, ::2]
    raise ValueError(layout)


def require_close(got, want, tolerance, k):
    assert torch.isfinite(got).all()
    error = (got.double() - want).abs()
    scale = want.abs().square().mean().sqrt()
    assert error.max() <= tolerance * (want.abs().max() + scale), float(error.max() / scale)


@gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("part", range(8))
def test_random_shapes_and_strides(dtype, part):
    rng, layouts = random.Random(part), ("rows", "columns", "odd pitch", "gaps")
    for _ in range(20):
        m, n, k = (int(2 ** rng.uniform(0, 10.5)) for _ in range(3))
        a, b = (strided(*shape, rng.choice(layouts), dtype) for shape in ((m, k), (k, n)))
        want = a.double() @ b.double()
        require_close(gemm(a, b), want, TOLERANCE[dtype], k)


@gpu
@pytest.mark.parametrize("m", [1, 16, 40, 200, 384])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_epilogues(m, activation, dtype):
    n, k = 520, 520
    a, b = torch.randn(m, k, device=DEVICE).to(dtype), torch.randn(k, n, device=DEVICE).to(dtype)
    bias, residual = torch.randn(n, device=DEVICE).to(dtype), torch.randn(m, n, device=DEVICE).to(dtype)
    for given in itertools.product((None, bias), (None, residual)):
        sums = 0.1 * (a.double() @ b.double())
        sums = sums if given[0] is None else sums + bias.double()
        sums = sums if given[1] is None else sums + 0.5 * residual.double()
        got = gemm(a, b, bias=given[0], residual=given[1], activation=activation, alpha=0.1, beta=0.5)
        require_close(got, ACTIVATIONS[activation](sums), 2 * TOLERANCE[dtype], k)


@gpu
@pytest.mark.parametrize("shape", [(8, 64, 64), (300, 1000, 512), (1024, 1024, 1024)])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_gate_and_the_other_factor_are_computed_together(shape, dtype):
    m, n, k = shape
    x, weight = (torch.randn(rows, k, device=DEVICE) for rows in (m, 2 * n))
    x, weight = x.to(dtype), (weight / k**0.5).to(dtype)
    gate, up = (x.double() @ weight.double().T).chunk(2, dim=1)
    require_close(linear(x, weight, activation="swiglu"), F.silu(gate) * up, 2 * TOLERANCE[dtype], k)


@gpu
def test_fp8_with_scales_of_rows():
    a, b = torch.randn(200, 256, device=DEVICE), torch.randn(512, 256, device=DEVICE)
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).T
    scale_a, scale_b = torch.rand(200, 1, device=DEVICE) + 0.5, torch.rand(1, 512, device=DEVICE) + 0.5
    want = (a.double() * scale_a) @ (b.double() * scale_b)
    require_close(gemm(a, b, scale_a=scale_a, scale_b=scale_b), want, 2**-8, 256)
    one = torch.full((), 0.25, device=DEVICE)
    require_close(gemm(a, b, scale_a=one), 0.25 * (a.double() @ b.double()), 2**-8, 256)


@gpu
@pytest.mark.parametrize("shape", [(1, 64, 256), (200, 520, 640), (1024, 1000, 1000)])
def test_fp8_with_scales_of_blocks(shape):
    m, n, k = shape
    a, b = (torch.randn(rows, k, device=DEVICE).to(torch.float8_e4m3fn) for rows in (m, n))
    blocks_k, blocks_n = -(-k // 128), -(-n // 128)
    scale_a = torch.rand(m, blocks_k, device=DEVICE) + 0.5
    scale_b = torch.rand(blocks_n, blocks_k, device=DEVICE).T + 0.5
    wide_a = scale_a.double().repeat_interleave(128, 1)[:, :k]
    wide_b = scale_b.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:k, :n]
    want = (a.double() * wide_a) @ (b.double().T * wide_b)
    require_close(gemm(a, b.T, scale_a=scale_a, scale_b=scale_b), want, 2**-8, k)


@gpu
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(3, 40, 64), (200, 1000, 520), (700, 1030, 256)])
def test_row_statistics_are_those_of_the_result(shape, dtype):
    m, n, k = shape
    a, b = torch.randn(m, k, device=DEVICE).to(dtype), torch.randn(k, n, device=DEVICE).to(dtype)
    bias = torch.randn(n, device=DEVICE).to(dtype)
    want = gemm(a, b, bias=bias, activation="gelu", alpha=0.1)
    for kind, of in (("square_sum", lambda x: x.square().sum(-1)), ("log_sum_exp", lambda x: x.logsumexp(-1))):
        got, statistics = gemm_with_row_statistics(a, b, kind, bias=bias, activation="gelu", alpha=0.1)
        require_close(got, want.double(), 2 * TOLERANCE[dtype], k)
        torch.testing.assert_close(statistics.double(), of(got.double()), rtol=1e-5, atol=1e-5)


@gpu
@pytest.mark.parametrize("kind", ["normal", "positive", "wide", "ill-conditioned"])
def test_emulated_fp32_is_no_less_accurate_than_fmas(kind):
    size = 1024
    a, b = torch.randn(size, size, device=DEVICE), torch.randn(size, size, device=DEVICE)
    if kind == "positive":
        a, b = a.abs(), b.abs()
    if kind == "wide":
        a, b = (x * torch.exp2(torch.randint(-15, 16, x.shape, device=DEVICE).float()) for x in (a, b))
    if kind == "ill-conditioned":
        b = torch.cat([b[: size // 2], b[: size // 2]])
        a = torch.cat([a[:, : size // 2], -a[:, : size // 2] * (1 + 1e-3 * a[:, size // 2 :])], 1)
    exact = a.double() @ b.double()
    own, fma = gemm(a, b) - exact, a @ b - exact
    assert own.norm() <= fma.norm()
    assert own.abs().max() <= fma.abs().max()


@gpu
@pytest.mark.parametrize("m", [1, 7, 16, 33, 64, 100, 128])
@pytest.mark.parametrize("kind", ["normal", "positive", "wide"])
def test_few_rows_of_fp32_are_no_less_accurate_than_fmas_in_order(m, kind):
    for n, k in ((136, 32), (1000, 4096), (17000, 1056)):
        x, weight = torch.randn(m, k, device=DEVICE), torch.randn(n, k, device=DEVICE)
        if kind == "positive":
            x, weight = x.abs(), weight.abs()
        if kind == "wide":
            x, weight = (
                one * torch.exp2(torch.randint(-8, 9, one.shape, device=DEVICE).float()) for one in (x, weight)
            )
        exact, fma = x.double() @ weight.double().T, torch.zeros(m, n, device=DEVICE)
        for i in range(k):
            fma.addcmul_(x[:, i : i + 1], weight[:, i])
        assert (linear(x, weight) - exact).norm() <= (fma - exact).norm() + 2**-24 * exact.norm(), (n, k)


@gpu
@pytest.mark.parametrize("out_dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [1000, 17000])
def test_few_rows_of_fp32_with_an_epilogue_and_other_operands(n, out_dtype):
    flat = torch.randn(n * 256 + 4, device=DEVICE)
    weights = [flat[at : at + n * 256].view(n, 256) for at in (0, 4, 1)]  # the last one cannot be read by TMA
    for m in (3, 50, 128):
        x, bias, residual = (torch.randn(*size, device=DEVICE) for size in ((m, 300), (n,), (m, n)))
        for rows in (x[:, :256], x[:, 1:257]):
            for weight in weights:
                got = gemm(rows, weight.T, bias=bias, residual=residual, alpha=0.1, beta=0.5, activation="gelu",
                           out_dtype=out_dtype)  # fmt: skip
                sums = 0.1 * (rows.double() @ weight.double().T) + bias.double() + 0.5 * residual.double()
                require_close(got, F.gelu(sums), max(TOLERANCE[out_dtype], 4e-6), 256)


@gpu
def test_weights_that_terms_cannot_hold_are_found_in_the_main_loop():
    x, weight, bias = (
        torch.randn(40, 512, device=DEVICE),
        torch.randn(900, 512, device=DEVICE),
        torch.randn(900, device=DEVICE),
    )
    weight[3, 5], weight[70, 300], weight[90, 64:128], weight[200] = torch.inf, torch.nan, 1e30, 0.0
    x[7] = 1e-30
    got, want = linear(x, weight, bias), F.linear(x.double(), weight.double(), bias.double())
    size = torch.ones(900, device=DEVICE)
    size[90] = 1e30
    torch.testing.assert_close((got / size).double(), want / size, rtol=1e-4, atol=1e-4, equal_nan=True)


@gpu
def test_rows_that_two_terms_cannot_hold_are_computed_in_fp32():
    a, b = torch.randn(700, 600, device=DEVICE), torch.randn(600, 900, device=DEVICE)
    a[3, 5], a[70], a[90], b[7, 11], b[:, 200] = torch.inf, 1e-30, 1e30, torch.nan, 0.0
    got, want = gemm(a, b, bias=torch.ones(900, device=DEVICE)), (a.double() @ b.double()) + 1
    size = torch.ones(700, 1, device=DEVICE)
    size[70], size[90] = 1.0, 1e30
    torch.testing.assert_close((got / size).double(), want / size, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert got[3].isfinite().logical_not().all() and got[:, 11].isnan().all()


@gpu
def test_a_residual_in_place_keeps_the_rows_that_terms_cannot_hold():
    a, b, residual = (torch.randn(1024, 1024, device=DEVICE) for _ in range(3))
    a[70] = 1e30
    want = a.double() @ b.double() + residual.double()
    got = gemm(a, b, residual=residual, out=residual)
    size = torch.ones(1024, 1, device=DEVICE).index_fill_(0, torch.tensor([70], device=DEVICE), 1e30)
    torch.testing.assert_close((got / size).double(), want / size, rtol=1e-4, atol=1e-4)


@gpu
def test_a_repeat_is_for_one_alignment_of_operands_and_output():
    memory = torch.randn(512 * 520 + 8, device=DEVICE).bfloat16()
    aligned, shifted = (memory[at : at + 512 * 512].view(512, 512) for at in (0, 1))
    b, out = torch.randn(512, 512, device=DEVICE).bfloat16(), torch.empty(512 * 512 + 1, device=DEVICE).bfloat16()
    shifted_out = out[1:].view(512, 512)
    for a in (aligned, shifted, aligned):
        require_close(gemm(a, b, out=shifted_out), a.double() @ b.double(), 2**-8, 512)


@gpu
def test_small_scales_do_not_vanish_in_emulated_products():
    a, b = (1e-17 * torch.randn(1024, 1024, device=DEVICE) for _ in range(2))
    exact = 0.3 * (a.double() @ b.double())
    assert (gemm(a, b, alpha=0.3) - exact).norm() <= 1.1 * (0.3 * (a @ b) - exact).norm()


@gpu
def test_gradients_through_linear():
    x = torch.randn(4, 50, 128, device=DEVICE, requires_grad=True)
    weight = torch.randn(256, 128, device=DEVICE, requires_grad=True)
    bias = torch.randn(256, device=DEVICE, requires_grad=True)
    dy = torch.randn(4, 50, 256, device=DEVICE)
    got = torch.autograd.grad(linear(x, weight, bias, activation="gelu"), (x, weight, bias), dy)
    want = torch.autograd.grad(
        F.gelu(F.linear(x.double(), weight.double(), bias.double())), (x, weight, bias), dy.double()
    )
    for one, other in zip(got, want, strict=True):
        require_close(one, other.double(), 1e-5, 256)


@gpu
def test_the_result_is_the_same_bit_by_bit():
    a, b = torch.randn(128, 14336, device=DEVICE).bfloat16(), torch.randn(14336, 4096, device=DEVICE).bfloat16()
    for rows in (8, 64, 128):
        first = gemm(a[:rows], b)
        assert all(torch.equal(first, gemm(a[:rows], b)) for _ in range(200))


@gpu
def test_graphs_streams_and_out():
    a, b = torch.randn(512, 512, device=DEVICE).bfloat16(), torch.randn(512, 512, device=DEVICE).bfloat16()
    out, want = torch.full((512, 512), torch.nan, device=DEVICE, dtype=torch.bfloat16), gemm(a, b)
    assert gemm(a, b, out=out) is out and torch.equal(out, want)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gemm(a, b, out=out)
    a.copy_(torch.randn_like(a))
    graph.replay()
    assert torch.equal(out, gemm(a, b))
    wide = torch.zeros(512, 1030, device=DEVICE, dtype=torch.bfloat16)
    gemm(a, b, out=wide[:, 1:513])
    assert torch.equal(wide[:, 1:513], gemm(a, b)) and not wide[:, 513:].any() and not wide[:, 0].any()
    compiled = torch.compile(lambda x, y: gemm(x, y, activation="relu") + 1)
    assert torch.equal(compiled(a, b), gemm(a, b, activation="relu") + 1)


@gpu
def test_empty_products():
    for m, n, k in itertools.product((0, 3), repeat=3):
        got = gemm(torch.ones(m, k, device=DEVICE).half(), torch.ones(k, n, device=DEVICE).half())
        assert got.shape == (m, n) and (got == k).all()


def fake(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype)


def fp8_pair():
    return (fake(*shape, dtype=torch.float8_e4m3fn) for shape in ((4, 256), (256, 7)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gemm(fake(4, 5), fake(6, 7)), ShapeError, "a has 5 columns, b 6 rows"),
        (lambda: gemm(fake(4, 5), fake(5, 7, dtype=torch.float16)), ShapeError, "b torch.float16"),
        (lambda: gemm(fake(4, 5, dtype=torch.int8), fake(5, 7, dtype=torch.int8)), ShapeError, "a is torch.int8"),
        (lambda: gemm(fake(5), fake(5, 7)), ShapeError, "two dimensions or more"),
        (lambda: gemm(fake(2, 4, 5), fake(3, 5, 7)), ShapeError, "a has the batch"),
        (lambda: gemm(fake(4, 5), fake(5, 7), bias=fake(8)), ShapeError, "bias is"),
        (lambda: gemm(fake(4, 5), fake(5, 7), residual=fake(4, 8)), ShapeError, "residual is"),
        (lambda: gemm(fake(4, 5), fake(5, 7), activation="tanh"), UsageError, "no activation 'tanh'"),
        (lambda: gemm(fake(4, 5), fake(5, 7), precision="fp64"), UsageError, "no precision 'fp64'"),
        (lambda: gemm(fake(4, 5), fake(5, 7), activation="swiglu"), ShapeError, "two equal parts"),
        (lambda: gemm(fake(4, 5), fake(5, 7), scale_a=torch.ones(())), ShapeError, "scales are for FP8"),
        (lambda: gemm_with_row_statistics(fake(4, 5), fake(5, 7), "mean"), UsageError, "no statistics 'mean'"),
        (
            lambda: gemm(*fp8_pair(), scale_a=torch.ones(4, 2), scale_b=torch.ones(())),
            ShapeError,
            "must both be of blocks",
        ),
        (lambda: gemm(fake(4, 5), fake(5, 7), out_dtype=torch.int32), ShapeError, "out_dtype is"),
        (lambda: gemm(fake(4, 5), fake(5, 7), out=fake(4, 8)), ShapeError, "out is"),
        (lambda: gemm(fake(4, 5), fake(5, 7), out=fake(4, 7).to("meta")), DeviceError, "out is on meta"),
        (
            lambda: gemm(*fp8_pair(), scale_a=fake(4, 2), scale_b=fake(2, 1)),
            ShapeError,
            r"scale_a is \(4, 2\) torch.bfloat16",
        ),
        (lambda: gemm(fake(4, 5), fake(5, 7)), DeviceError, "a is on cpu"),
        (lambda: linear(fake(4, 5), fake(5)), ShapeError, "weight"),
    ],
)
def test_wrong_arguments_are_named_before_a_launch(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_out_may_not_share_memory_with_an_operand():
    memory = fake(8, 8)
    with pytest.raises(UsageError, match="out shares memory with an operand"):
        gemm(memory, fake(8, 8), out=memory)
    with pytest.raises(UsageError, match="another view"):
        gemm(fake(8, 8), fake(8, 8), residual=memory.T, out=memory)
    with pytest.raises(UsageError, match="out= has no gradients"):
        gemm(fake(8, 8).requires_grad_(), fake(8, 8), out=memory)


def test_an_operand_that_tma_reads_is_not_copied():
    readable = fake(1, 64, 48)
    assert prepare_operand(readable, k_major_only=False).rows is readable
    by_columns = prepare_operand(readable.mT, k_major_only=False)
    assert by_columns.transposed and by_columns.rows.data_ptr() == readable.data_ptr()
    copied = prepare_operand(readable.mT, k_major_only=True)
    assert not copied.transposed and copied.rows.data_ptr() != readable.data_ptr()
    odd = torch.ones(2, 64, 45, dtype=torch.bfloat16)
    assert not is_readable(odd)
    rows = prepare_operand(odd, k_major_only=False).rows
    assert rows.shape == odd.shape and rows.stride(1) == padded_pitch(45, 2) == 48 and torch.equal(rows, odd)


def test_few_transposed_rows_are_copied_since_their_tile_is_narrow():
    few = torch.ones(1, 48, 8, dtype=torch.bfloat16).mT
    assert not product._prepare(few, None, expand_scale=False, k_major_only=True).transposed
    assert product._prepare(few, None, expand_scale=False, k_major_only=False).transposed


@pytest.mark.parametrize("m", [1, 8, 16, 17, 64, 65, 128, 1000, 8192])
@pytest.mark.parametrize(("n", "k"), [(64, 64), (6144, 4096), (28672, 4096), (4096, 14336), (1000, 100)])
def test_a_chosen_tile_fits_the_chip(m, n, k):
    for transpose_b, gated in itertools.product((False, True), repeat=2):
        variant = Variant("bf16", "bf16", "bf16", "bf16", transpose_b=transpose_b, gated=gated)
        config = choose_config(m, n, k, 1, variant, 132)
        assert replace(variant, bias=True).shared_bytes(config) <= MAX_SHARED_BYTES


def test_few_rows_of_fp32_leave_the_splitting_of_the_weights_to_the_main_loop():
    def choose(m, n, in_loop=True):
        return choose_emulated(m, n, 4096, 1, FP32_TERMS, 132, in_loop=in_loop)

    few = choose(20, 4096)
    assert few.split_in_loop and few.swapped and few.block_n == 32
    assert choose(128, 32768).block_n == 128 and choose(128, 32768).split_k == 1
    blocks = {n: -(-n // one.block_m) * one.split_k for n in (512, 1024, 2048, 6144, 8192) for one in (choose(8, n),)}
    assert all(32 <= count <= 132 for count in blocks.values()), "the weights are read by many multiprocessors"
    assert not choose(20, 4096, in_loop=False).split_in_loop


def test_blocks_share_the_steps_of_emulated_products_with_few_tiles():
    def split_k(m, n, k, batch=1):
        return choose_emulated(m, n, k, batch, FP32_TERMS, 132, in_loop=False).split_k

    assert split_k(256, 256, 1 << 19) == 8
    assert split_k(128, 1024, 1024) == 2
    assert split_k(512, 512, 512, batch=8) == 1
    assert split_k(4096, 4096, 4096) == 1


def test_emulation_pays_where_operations_outweigh_the_splitting():
    for shape in [(1024, 1024, 1024), (8192, 8192, 8192), (128, 4096, 4096), (16384, 16384, 64)]:
        assert emulation_pays(*shape, 1, in_loop=False), shape
    for shape in [(1, 4096, 4096), (16, 14336, 4096), (256, 256, 256), (64, 64, 1 << 20)]:
        assert not emulation_pays(*shape, 1, in_loop=False), shape
    assert not emulation_pays(1, 4096, 4096, 1, in_loop=True)
    assert emulation_pays(256, 256, 256, 64, in_loop=False)
    assert emulation_pays(8, 14336, 4096, 1, in_loop=True) and not emulation_pays(8, 14336, 4096, 1, in_loop=False)


def test_fewer_waves_are_preferred():
    def choose(m, n):
        return choose_config(m, n, 4096, 1, BF16, 132)

    wide = choose(512, 6144)
    assert -(-512 // wide.block_m) * -(-6144 // wide.block_n) in range(120, 133)
    assert choose(8192, 8192).ping_pong
    assert choose(16, 6144).swapped and not choose(256, 6144).swapped


@pytest.mark.parametrize(
    ("config", "variant", "instruction"),
    [
        (TILES[0][0], BF16, "HGMMA.64x128x16"),
        (replace(TILES[0][0], cluster_m=2), Variant("f16", "f16", "f32", "f32", transpose_b=True), "HGMMA.64x128x16"),
        (SPLIT_TILE, FP32_TERMS, "HGMMA.64x128x16"),
        (choose_emulated(1024, 1024, 1024, 1, FP32_TERMS, 132, in_loop=False), FP32_TERMS, "HGMMA.64x128x16"),
        (replace(IN_LOOP, block_n=64, num_stages=4, split_k=4), FP32_TERMS, "HGMMA.64x64x16"),
        (replace(IN_LOOP, block_n=128), FP32_TERMS, "HGMMA.64x128x16"),
        (FP8_TILES[0][0], Variant("e4m3", "e4m3", "bf16", "bf16", scales=True), "QGMMA.64x128x32"),
        (FP8_TILES[1][0], Variant("e4m3", "e4m3", "bf16", "bf16", block_scales=True), "QGMMA.64x128x32"),
        (choose_config(8, 6144, 4096, 1, BF16, 132), BF16, "HGMMA.64x8x16"),
    ],
    ids=[
        "bf16",
        "transposed",
        "fp32 in two terms",
        "fp32, split sums",
        "fp32, split in the loop",
        "fp32, 128 rows",
        "fp8",
        "fp8 in blocks",
        "few rows",
    ],
)
def test_a_tile_compiles_to_wgmma_and_tma_without_spills(config, variant, instruction):
    variant = variant.oriented(config)
    code = disassemble(compile_product(config, variant, "sm_90a").code)["gemm_sm90"]
    opcodes = {one.opcode for one in code}
    products = {(one.opcode, one.operands) for one in code if one.base_opcode in ("HGMMA", "QGMMA")}
    assert any(opcode.startswith(instruction) for opcode, _ in products), products
    assert any(opcode.startswith("UTMALDG.3D") for opcode in opcodes)
    assert ("UTMASTG.3D" in opcodes) == variant.tma_store
    loop = [at for at, one in enumerate(code) if one.base_opcode in ("HGMMA", "QGMMA")]
    assert not any(one.base_opcode in ("STL", "LDL") for one in code[loop[0] : loop[-1]]), "registers are spilled"
    assert ("UTMALDG.3D.MULTICAST" in opcodes) == (config.cluster_m * config.cluster_n > 1)


def test_a_users_table_overrides_recorded_tiles(tmp_path, monkeypatch):
    assert choose_config(128, 4096, 4096, 1, BF16, 132) == find_recorded(128, 4096, 4096, 1, BF16)
    own = {"block_m": 64, "block_n": 256, "num_stages": 4, "num_consumers": 1}
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({"rows": [{"m": 128, "n": 4096, "k": 4096, "b": "nk", "config": own}]}))
    monkeypatch.setenv("KERNELWRIGHT_MATMUL_TUNED", str(path))
    assert choose_config(100, 4096, 4096, 1, BF16, 132) == GemmConfig(**own)
    assert choose_config(300, 4096, 4096, 1, BF16, 132) != GemmConfig(**own)
    assert choose_config(100, 4096, 4096, 1, replace(BF16, transpose_b=True), 132) != GemmConfig(**own)
    assert choose_config(100, 4096, 4096, 4, BF16, 132) != GemmConfig(**own)
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"rows": [{"m": 1}]}')
    monkeypatch.setenv("KERNELWRIGHT_MATMUL_TUNED", str(wrong))
    with pytest.raises(UsageError, match="no table of tuned products"):
        choose_config(128, 4096, 4096, 1, BF16, 132)


def test_every_recorded_tile_is_chosen_for_its_product():
    rows = json.loads(PACKAGED.read_text())["rows"]
    for row in rows:
        variant = replace(BF16, transpose_b=row["b"] == "kn")
        config = choose_config(row["m"], row["n"], row["k"], 1, variant, 132)
        recorded = GemmConfig(**row["config"])
        assert replace(config, num_stages=recorded.num_stages) == recorded
        assert config.split_k == 1 or row["k"] // 64 >= config.split_k
