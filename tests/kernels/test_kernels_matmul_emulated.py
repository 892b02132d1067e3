"""The product kernel on the CPU: every tile with random layouts and epilogues, copies that arrive at random times."""

import itertools
import random
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from kernelwright.kernels.matmul import launch, product, repeats
from kernelwright.kernels.matmul.configs import GemmConfig, Variant
from kernelwright.kernels.matmul.epilogue import PLAIN
from kernelwright.kernels.matmul.op import gemm, linear
from kernelwright.kernels.matmul.operands import ELEMENT_TYPES
from kernelwright.kernels.matmul.product import multiply
from kernelwright.kernels.matmul.search_space import WIDE_TILES
from kernelwright.kernels.matmul.selection import (
    EMULATED_TILES,
    FP8_TILES,
    IN_LOOP_COLUMNS,
    SPLIT_TILE,
    TILES,
    _fit,
    permits,
)

OUT_EPS = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-23}
FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
SUM_EPS = {torch.float32: 2**-20}
"""Of |a| @ |b|; for 16 bits and FP8 2^-18, for sums in FP32 in another order and BF16's approximate GELU."""
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
FEW_ROWS = [
    GemmConfig(128, 8, 8, 2, swapped=True),
    *(
        GemmConfig(64, columns, 8, 1, split_k=split, swapped=True, min_blocks=min_blocks)
        for columns, split, min_blocks in ((8, 8, 2), (16, 4, 2), (32, 2, 1), (64, 2, 1), (128, 1, 1), (64, 1, 2))
    ),
    GemmConfig(128, 64, 6, 2, split_k=4, swapped=True),
    GemmConfig(128, 64, 6, 2, cluster_m=2, swapped=True),
    GemmConfig(64, 128, 6, 1, cluster_m=4, swapped=True),
]
COVERING = [GemmConfig(128, 80, 6, 2, cluster_n=2), GemmConfig(128, 104, 6, 2, ping_pong=True)]
SPLIT_K = [GemmConfig(*tile, 4, tile[0] // 64, split_k=split) for tile, split in (((64, 64), 8), ((128, 96), 2))]
IN_LOOP = replace(SPLIT_TILE, block_n=64, num_stages=4, swapped=True, split_in_loop=True)
CONFIGS = {
    torch.bfloat16: [*(tile for tile, _, _ in TILES), *WIDE_TILES, *FEW_ROWS, *COVERING, *SPLIT_K],
    torch.float16: [TILES[0][0], TILES[5][0], FEW_ROWS[2], SPLIT_K[0]],
    torch.float8_e4m3fn: [tile for tile, _, _ in FP8_TILES],
    torch.float8_e5m2: [FP8_TILES[0][0]],
    torch.float32: [
        *(replace(SPLIT_TILE, split_k=split) for split in (1, 2, 8)),
        *(tile for tile, _, _ in EMULATED_TILES),
        *(
            replace(SPLIT_TILE, block_n=columns, num_stages=8, swapped=True, split_in_loop=True, split_k=split)
            for columns, split in itertools.product(IN_LOOP_COLUMNS, (1, 4))
        ),
    ],
}
CASES = [(dtype, config) for dtype, configs in CONFIGS.items() for config in configs]
FAST = (
    "bfloat16-128x128-ping_pong",
    "bfloat16-256x128-cluster2x1",
    "bfloat16-128x160-cluster1x2-ping_pong",
    "bfloat16-64x16-split4-swapped-two_blocks",
    "float8_e4m3fn-128x128",
    "float32-128x128-split2",
    "float32-128x32-split4-swapped-in_loop",
)


def describe(case):
    """The test's name."""
    dtype, one = case
    marks = (
        (one.cluster > one.split_k, f"cluster{one.cluster_m}x{one.cluster_n}"),
        (one.split_k > 1, f"split{one.split_k}"),
        (one.ping_pong, "ping_pong"),
        (one.swapped, "swapped"),
        (one.split_in_loop, "in_loop"),
        (one.min_blocks > 1, "two_blocks"),
    )
    parts = [
        str(dtype).removeprefix("torch."),
        f"{one.block_m}x{one.block_n}",
        *(mark for is_on, mark in marks if is_on),
    ]
    return "-".join(parts)


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch):
    """Blocks compute several tiles each."""
    monkeypatch.setattr(launch, "EMULATED_MULTIPROCESSORS", 4)
    launch.count_multiprocessors.cache_clear()
    yield
    launch.count_multiprocessors.cache_clear()


def make_matrix(rng, batch, rows, columns, dtype):
    """Contiguous along the columns or the rows, with a pitch that TMA addresses or does not."""
    make = lambda *size: torch.randn(batch, *size).to(dtype)  # noqa: E731
    return rng.choice(
        (
            lambda: make(rows, columns),
            lambda: make(columns, rows).mT,
            lambda: make(rows, columns + 3)[..., 1 : columns + 1],
            lambda: make(rows, columns + 16)[..., 8 : columns + 8],
        )
    )()


def make_epilogue(rng, shape, dtype, out_dtype, config):
    """A random epilogue that the configuration has."""
    (batch, m, n, k), options = shape, {}
    options["alpha"], options["beta"] = rng.choice((1.0, 0.25)), rng.choice((1.0, 0.5))
    options["activation"] = rng.choice((*ACTIVATIONS, "none"))
    if rng.random() < 0.5:
        options["bias"] = torch.randn(n).to(out_dtype)
    if rng.random() < 0.5:
        options["residual"] = make_matrix(rng, batch, m, n, out_dtype)
    can_change_columns = not config.swapped and config.split_k == 1 and dtype != torch.float32
    if dtype in FP8 and (kind := rng.choice(("none", "tensors", "rows", "blocks", "blocks"))) != "none":
        sizes = {
            "blocks": ((batch, m, -(-k // 128)), (-(-k // 128), -(-n // 128))),
            "rows": ((batch, m, 1), (1, n)),
            "tensors": ((1, 1), (1, 1)),
        }[kind]
        options["scale_a"], options["scale_b"] = (torch.rand(size) + 0.5 for size in sizes)
    elif can_change_columns and rng.random() < 0.3:
        options |= {"statistics": rng.choice(("square_sum", "log_sum_exp"))}
    elif can_change_columns and rng.random() < 0.3 and n % 16 == 0:
        options = {"activation": "swiglu", "alpha": options["alpha"]}
    return PLAIN._replace(**options)


def expand_scale(scale, shape):
    """Block scales, or scales of rows or columns, of each element."""
    for dim, size in ((-2, shape[0]), (-1, shape[1])):
        if scale.shape[dim] not in (1, size):
            scale = scale.repeat_interleave(128, dim)
        scale = scale.narrow(dim, 0, min(scale.shape[dim], size))
    return scale.double()


def reference(a, b, epilogue):
    """Result in FP64, and the magnitudes that its rounding errors are relative to."""
    a, b = a.double(), b.double()
    if epilogue.scale_a is not None:
        a = a * expand_scale(epilogue.scale_a, a.shape[-2:])
        b = b * expand_scale(epilogue.scale_b, b.shape[-2:])
    sums, magnitudes = epilogue.alpha * (a @ b), epilogue.alpha * (a.abs() @ b.abs())
    if epilogue.activation == "swiglu":
        (gate, up), parts = sums.chunk(2, -1), magnitudes.chunk(2, -1)
        return F.silu(gate) * up, (parts[0] + 1) * (parts[1] + 1)
    for added in (epilogue.bias, None if epilogue.residual is None else epilogue.beta * epilogue.residual.double()):
        if added is not None:
            sums, magnitudes = sums + added.double(), magnitudes + added.double().abs()
    return ACTIVATIONS[epilogue.activation](sums), magnitudes


def require_statistics(statistics, out, kind):
    out = out.double()
    if kind == "square_sum":
        torch.testing.assert_close(statistics.double().sum(-1), out.square().sum(-1), rtol=1e-4, atol=1e-4)
    else:
        largest, sums = statistics.double().unbind(-1)
        torch.testing.assert_close((largest + sums.log()).logsumexp(-1), out.logsumexp(-1), rtol=1e-4, atol=1e-4)


def make_case(dtype, config, seed):
    """Random operands, an epilogue and the type of the result, with the stages that fit."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    batch = 1 if config.swapped else rng.choice((1, 1, 3))
    m = rng.randint(1, config.block_n * (1 if config.split_in_loop else 2)) if config.swapped else rng.randint(1, 700)
    n, k = (8 * rng.randint(1, most) - rng.choice((0, 0, 3)) for most in (90, 50))
    k += 1024 * (seed % 2)  # more steps than two rounds of the ring
    k = max(k // 32, 1) * 32 if config.split_in_loop else k
    out_dtype = rng.choice(tuple(OUT_EPS))
    a, b = make_matrix(rng, batch, m, k, dtype), make_matrix(rng, batch, k, n, dtype)
    b = torch.randn(batch, n, k).mT if config.split_in_loop else b
    epilogue = make_epilogue(rng, (batch, m, n, k), dtype, out_dtype, config)
    kind, gated = ELEMENT_TYPES[out_dtype], epilogue.activation == "swiglu"
    variant = Variant(
        "bf16", "bf16", kind, kind, transpose_b=dtype not in FP8 and b.stride(-1) == 1, gated=gated, bias=True,
        scales=dtype in (*FP8, torch.float32), block_scales=epilogue.has_block_scales,
    )  # fmt: skip
    if not permits(config, variant):
        variant, epilogue = replace(variant, gated=False), PLAIN
    return a, b, epilogue, out_dtype, _fit(config, variant) if permits(config, variant) else None


def check_tile(dtype, config, seed):
    """Compare a random product with one in FP64; False if the kernel has no such tile for its layout."""
    a, b, epilogue, out_dtype, fitted = make_case(dtype, config, seed)
    if fitted is None:
        return False
    n = b.shape[-1] // 2 if epilogue.activation == "swiglu" else b.shape[-1]
    out = torch.full((*a.shape[:2], n), float("nan"), dtype=out_dtype)
    statistics = multiply(a, b, epilogue, out, "fp32", fitted)
    want, magnitudes = reference(a, b, epilogue)
    bound = SUM_EPS.get(dtype, 2**-18) * magnitudes + OUT_EPS[out_dtype] * want.abs() + 1e-6
    error = (out.double() - want).abs()
    assert (error <= bound).all(), (seed, epilogue.activation, float((error / bound).nan_to_num(1e9).max()))
    if epilogue.statistics != "none":
        require_statistics(statistics, out, epilogue.statistics)
    return True


assert set(FAST) <= set(map(describe, CASES))


@pytest.mark.parametrize("case", [case for case in CASES if describe(case) in FAST], ids=describe)
def test_a_tile(case):
    assert check_tile(*case, 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=describe)
def test_every_tile(case):
    assert sum(check_tile(*case, seed) for seed in range(1, 4)) > 0


@pytest.mark.parametrize("config", [SPLIT_TILE, IN_LOOP], ids=["prologue", "in_loop"])
def test_rows_that_two_terms_cannot_hold_are_computed_with_fmas(config):
    a, b = torch.randn(1, 40, 520), torch.randn(1, 300, 520)
    a[0, 7], a[0, 9], b[0, 3, 5], b[0, 70, 300], b[0, 90, 64:128], b[0, 200] = (
        1e-30,
        0.0,
        torch.inf,
        torch.nan,
        1e30,
        0.0,
    )
    k = 512 if config.split_in_loop else 520
    a, b, bias, out = a[..., :k], b[..., :k].mT, torch.randn(300), torch.full((1, 40, 300), 7.0)
    multiply(a, b, PLAIN._replace(bias=bias), out, "fp32", config)
    want, size = a.double() @ b.double() + bias.double(), torch.ones(300)
    size[90] = 1e30
    torch.testing.assert_close((out / size).double(), want / size, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.fixture
def multiplied(monkeypatch):
    """`gemm` on the CPU; which products were prepared, not repeated."""
    calls = []

    def allocate(shape, strides, dtype):
        return torch.empty_strided(shape, strides, dtype=dtype).fill_(float("nan"))

    def prepare(*arguments):
        calls.append(arguments)
        return multiply(*arguments)

    monkeypatch.setattr(product, "is_fused", lambda *_: True)
    monkeypatch.setattr(product, "device_guard", lambda _: nullcontext())
    monkeypatch.setattr(product, "multiply", prepare)
    monkeypatch.setattr(repeats, "_empty_strided_cuda", allocate)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
    return calls


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_call_is_repeated_for_the_same_layouts(multiplied, dtype):
    memory, out_memory = torch.randn(70 * 128 + 8).to(dtype), torch.zeros(70 * 96 + 8, dtype=dtype)
    bias, weight = torch.randn(96).to(dtype), torch.randn(96, 128).to(dtype)
    copied = (1, 0), 4  # misaligned for TMA
    for shifts, prepared in (((0, 0), 1), ((0, 0), 1), ((1, 0), 2), ((0, 0), 2), ((0, 1), 3), ((0, 1), 3), copied):
        a, out = memory[shifts[0] :][: 70 * 128].view(70, 128), out_memory[shifts[1] :][: 70 * 96].view(70, 96)
        memory.normal_()
        bias.normal_()
        want = a.double() @ weight.double().T + bias.double()
        gemm(a, weight.T, bias=bias, out=out)
        torch.testing.assert_close(out.double(), want, rtol=2**-7, atol=1e-2)
        if dtype == torch.bfloat16:  # operands of FP32 are split, misaligned or not
            assert len(multiplied) == prepared
    got = linear(memory[: 70 * 128].view(70, 128), weight, bias)
    assert got.is_contiguous()
    torch.testing.assert_close(got, linear(memory[: 70 * 128].view(70, 128), weight, bias), rtol=0, atol=0)


@pytest.mark.parametrize("columns", [60, 64])
def test_gated_halves_that_tma_cannot_address(multiplied, columns):
    a, b = torch.randn(70, 64).bfloat16(), torch.randn(64, 2 * columns).bfloat16() / 8
    gate, up = (a.double() @ b.double()).chunk(2, -1)
    got = gemm(a, b, activation="swiglu")
    torch.testing.assert_close(got.double(), F.silu(gate) * up, rtol=2**-7, atol=1e-3)


def test_gradients_in_the_emulator(multiplied):
    a, b, bias = (torch.randn(*size, requires_grad=True) for size in ((33, 40), (40, 56), (56,)))
    dy = torch.randn(33, 56)
    got = torch.autograd.grad(gemm(a, b, bias=bias, activation="silu"), (a, b, bias), dy)
    exact = [one.detach().double().requires_grad_() for one in (a, b, bias)]
    want = torch.autograd.grad(F.silu(exact[0] @ exact[1] + exact[2]), exact, dy.double())
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_a_residual_in_place_keeps_rows_that_terms_cannot_hold(multiplied):
    a, b, residual = torch.randn(70, 64), torch.randn(64, 96), torch.randn(70, 96)
    a[7] = 1e30
    want, size = a.double() @ b.double() + residual.double(), torch.ones(70, 1)
    size[7] = 1e30
    gemm(a, b, residual=residual, out=residual)
    torch.testing.assert_close((residual / size).double(), want / size, rtol=1e-5, atol=1e-5)
