"""Thirty operators, each with honest and dishonest ways to compute it, to try the error budget on.

An honest variant computes in the program's precision, in another order or another form. A dishonest one saves precision
or work. `OPERATORS` holds them all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
import convolutions
from emulated import (
    BAD_PRODUCTS,
    BAD_SUMS,
    LOG2E,
    LSES,
    MOMENTS,
    PRODUCTS,
    ROOT_HALF,
    SOFTMAXES,
    SUMS,
    Sum,
    Variant,
    attention,
    attention_with,
    averaged,
    bf16_accumulated,
    bf16_sum,
    chain,
    chain_fused,
    chan,
    convolution,
    convolution_with,
    cross_entropy,
    cross_entropy_with,
    cumsum_bf16_carry,
    cumsum_blocks,
    cumsum_doubling,
    cumsum_sequential,
    flash,
    floating,
    folded_exp2_softmax,
    gelu_erf,
    in_float,
    k_blocks,
    layer_norm_with,
    linear_gelu_with,
    log_sum_exp_with,
    minus,
    of_half,
    one_pass,
    online_softmax,
    pairwise,
    part_in_bf16,
    rms_norm,
    rms_norm_with,
    rotary,
    rotary_complex,
    rotary_fused,
    rotary_with,
    rough_exp,
    second,
    shifted_convolution,
    softmax_with,
    split_k,
    to_bits,
    two_pass,
)
from local_errors import single_cheats, small_row_cheats, uneven, wrong_share_cheats


@dataclass
class Operator:
    """A program, example inputs from the current random state at a size of 1 (full) or less, and its variants."""

    name: str
    program: Variant
    inputs: Callable[[float], list]
    honest: dict[str, Variant] = field(default_factory=dict)
    dishonest: dict[str, Variant] = field(default_factory=dict)
    narrow: bool = False

    def __post_init__(self) -> None:
        self.honest = {"FP64 inside": _wide(self.program)} | self.honest
        self.dishonest = (NARROW_CHEATS if self.narrow else CHEATS)(self.program) | self.dishonest


# ---- What any program can be spoiled with


def truncated(x: Tensor) -> Tensor:
    """TF32 as the tensor core reads plain FP32: the low 13 bits dropped."""
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


def int8(x: Tensor) -> Tensor:
    scale = x.abs().amax().clamp_min(1e-30) / 127
    return (x / scale).round() * scale


def _wide(program: Variant) -> Variant:
    def variant(*args: object) -> Tensor:
        first = next(a for a in args if isinstance(a, Tensor) and a.dtype.is_floating_point)
        return program(*floating(torch.Tensor.double, args)).to(first.dtype)

    return variant


def _operands(program: Variant, fn: Callable[[Tensor], Tensor]) -> Variant:
    return lambda *args: program(*floating(fn, args))


def _inside(program: Variant, dtype: torch.dtype) -> Variant:
    return lambda *args: program(*floating(lambda t: t.to(dtype), args)).float()


def _after(program: Variant, fn: Callable[[Tensor], Tensor]) -> Variant:
    return lambda *args: fn(program(*args).clone())


def _change(part: Callable[[int], slice], fn: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Applies `fn` to (the chosen part, all) of the flat output."""

    def change(out: Tensor) -> Tensor:
        flat = out.reshape(-1)
        chosen = part(flat.numel())
        flat[chosen] = fn(flat[chosen], flat).to(out.dtype)
        return flat.view_as(out)

    return change


def _middle(count: int) -> Callable[[int], slice]:
    return lambda n: slice(n // 3, n // 3 + min(count, max(1, n // 4)))


def CHEATS(program: Variant) -> dict[str, Variant]:
    return {
        "FP16 operands": _operands(program, lambda t: t.half().float()),
        "BF16 operands": _operands(program, lambda t: t.bfloat16().float()),
        "TF32 operands": _operands(program, lambda t: to_bits(t, 11)),
        "truncated operands": _operands(program, truncated),
        "FP8 operands": _operands(program, lambda t: to_bits(t, 4)),
        "int8 operands": _operands(program, int8),
        "FP16 output": _after(program, lambda t: t.half().float()),
        "BF16 output": _after(program, lambda t: t.bfloat16().float()),
        "BF16 inside": _inside(program, torch.bfloat16),
    } | _spoiled(program, 1e-3)


def NARROW_CHEATS(program: Variant) -> dict[str, Variant]:
    return {
        "FP8 operands": _operands(program, lambda t: to_bits(t.float(), 4).to(t.dtype)),
        "FP8 output": _after(program, lambda t: to_bits(t.float(), 4).to(t.dtype)),
        "int8 operands": _operands(program, lambda t: int8(t.float()).to(t.dtype)),
    } | _spoiled(program, 2e-2)


def _spoiled(program: Variant, share: float) -> dict[str, Variant]:
    some = lambda n: slice(0, None, 100)  # noqa: E731
    return {
        "zeros": _after(program, torch.zeros_like),
        "constant": _after(program, torch.ones_like),
        "zero tile": _after(program, _change(_middle(256), lambda t, _: torch.zeros_like(t))),
        "one wrong element": _after(program, _change(_middle(1), lambda t, all_: all_.abs().max() * 0.5 + t)),
        "stale tail": _after(program, _change(lambda n: slice(n - max(1, n // 50), n), lambda t, _: t * 0.5)),
        f"scaled by 1+{share:g}": _after(program, lambda t: t * (1 + share)),
        "1 % of elements 2 % off": _after(program, _change(some, lambda t, _: t * 1.02)),
    }


def size(full: int, scale: float, least: int = 32) -> int:
    return max(least, int(full * scale))


def r(*shape: int) -> Tensor:
    return torch.randn(*shape)


def _pointwise() -> list[Operator]:
    return [
        Operator(
            "relu((x+y)*s+b)",
            chain,
            lambda z: [r(size(1024, z), 64), r(size(1024, z), 64), r(64), r(64)],
            {
                "FMA": chain_fused,
                "distributed": lambda x, y, s, b: torch.relu(x * s + (y * s + b)),
                "addcmul": lambda x, y, s, b: torch.addcmul(b, x + y, s).clamp_min(0),
            },
            {"half intermediate": lambda x, y, s, b: torch.relu((x + y).half().float() * s + b)},
        ),
        Operator(
            "gelu",
            F.gelu,
            lambda z: [r(size(65536, z))],
            {
                "erf written out": gelu_erf,
                "x*(erf/2+1/2)": lambda x: x * (0.5 + 0.5 * torch.erf(x * ROOT_HALF)),
            },
            {
                "tanh form": lambda x: F.gelu(x, approximate="tanh"),
                "sigmoid form": lambda x: x * torch.sigmoid(1.702 * x),
                "BF16 erf": lambda x: 0.5 * x * (1 + to_bits(torch.erf(x * ROOT_HALF), 8)),
            },
        ),
        Operator(
            "silu",
            F.silu,
            lambda z: [r(size(65536, z))],
            {
                "x*sigmoid": lambda x: x * torch.sigmoid(x),
                "x/(1+exp(-x))": lambda x: x / (1 + torch.exp(-x)),
                "exp2 form": lambda x: x / (1 + torch.exp2(-x * LOG2E)),
                "tanh form": lambda x: 0.5 * x * (1 + torch.tanh(0.5 * x)),
            },
            {"rough exp": lambda x: x / (1 + rough_exp(-x)), "hard swish": F.hardswish},
        ),
        Operator(
            "sigmoid",
            torch.sigmoid,
            lambda z: [r(size(65536, z))],
            {
                "1/(1+exp(-x))": lambda x: 1 / (1 + torch.exp(-x)),
                "exp2 form": lambda x: 1 / (1 + torch.exp2(-x * LOG2E)),
                "tanh form": lambda x: 0.5 + 0.5 * torch.tanh(0.5 * x),
            },
            {"rough exp": lambda x: 1 / (1 + rough_exp(-x)), "BF16 exp": lambda x: 1 / (1 + to_bits(torch.exp(-x), 8))},
        ),
        Operator(
            "rotary",
            rotary,
            lambda z: [r(8, size(128, z), 64), torch.arange(size(128, z))[:, None] * 10000 ** (-torch.arange(32) / 32)],
            {"FMA": rotary_fused, "complex": rotary_complex},
            {
                "BF16 tables": rotary_with(lambda t: to_bits(t, 8)),
                "FP16 tables": rotary_with(lambda t: to_bits(t, 11)),
                "no rotation": lambda x, angle: x,
            },
        ),
    ]


def _rows() -> list[Operator]:
    shape = lambda z: (size(64, z), 1000)  # noqa: E731
    affine = lambda z: [r(*shape(z)) * 2 + 0.5, 1 + r(1000) / 8, r(1000) / 8]  # noqa: E731
    return [
        Operator(
            "softmax",
            lambda x: x.softmax(-1),
            lambda z: [r(*shape(z))],
            SOFTMAXES,
            {
                "no maximum taken off": softmax_with(shift=False),
                "rough exp": softmax_with(rough_exp),
                "half intermediates": softmax_with(lambda v: torch.exp(v).half().float()),
                "BF16 sum": softmax_with(total=bf16_sum),
                "last column left out": softmax_with(total=lambda e: e[..., :-1].sum(-1)),
            },
        ),
        Operator(
            "log-softmax",
            lambda x: x.log_softmax(-1),
            lambda z: [r(*shape(z))],
            {name: minus(f) for name, f in LSES.items()}
            | {"shifted first": lambda x: minus(LSES["online"])(x - x.amax(-1, True))},
            {
                "log of softmax": lambda x: torch.log(x.softmax(-1)),
                "no maximum taken off": minus(log_sum_exp_with(shift=False)),
                "BF16 sum": minus(log_sum_exp_with(total=bf16_sum)),
            },
        ),
        Operator(
            "logsumexp",
            lambda x: x.logsumexp(-1),
            lambda z: [r(*shape(z))],
            LSES,
            {
                "no maximum taken off": log_sum_exp_with(shift=False),
                "BF16 sum": log_sum_exp_with(total=bf16_sum),
                "rough exp": log_sum_exp_with(rough_exp),
            },
        ),
        Operator(
            "layer norm",
            lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b),
            affine,
            {name: layer_norm_with(f) for name, f in MOMENTS.items()},
            {
                "one-pass variance": layer_norm_with(one_pass),
                "no eps": layer_norm_with(lambda x: two_pass(x, lambda v: v.sum(-1)), eps=0.0),
                "BF16 intermediate": layer_norm_with(chan, bits=8),
                "unbiased variance": layer_norm_with(lambda x: (x.mean(-1), x.var(-1))),
            },
        ),
        Operator(
            "rms norm",
            rms_norm,
            lambda z: [r(*shape(z)), 1 + r(1000) / 8],
            {f"{n}": rms_norm_with(f) for n, f in SUMS.items()}
            | {"divided by a root": rms_norm_with(pairwise, divide=True)},
            {
                "no eps": rms_norm_with(pairwise, eps=0.0),
                "BF16 sum": rms_norm_with(bf16_sum),
                "part in BF16": rms_norm_with(part_in_bf16),
            },
        ),
        Operator(
            "cross-entropy",
            cross_entropy,
            lambda z: [r(*shape(z)), torch.randint(1000, (shape(z)[0],))],
            {name: cross_entropy_with(f) for name, f in LSES.items()},
            {
                "no maximum taken off": cross_entropy_with(log_sum_exp_with(shift=False)),
                "BF16 logits": lambda x, t: F.cross_entropy(to_bits(x, 8), t),
                "BF16 sum": cross_entropy_with(log_sum_exp_with(total=bf16_sum)),
                "last row left out": lambda x, t: F.cross_entropy(x[:-1], t[:-1]),
            },
        ),
    ]


def _sums() -> list[Operator]:
    long = lambda z: [r(4, size(1 << 20, z))]  # noqa: E731
    return [
        Operator(
            "sum of 2^20", lambda x: x.sum(-1), long, dict(SUMS), {"BF16 sum": bf16_sum, "part in BF16": part_in_bf16}
        ),
        Operator(
            "sum of 2^20 positive",
            lambda x: x.sum(-1),
            lambda z: [torch.rand(4, size(1 << 20, z))],
            dict(SUMS),
            dict(BAD_SUMS),
        ),
        Operator(
            "mean of 1e5",
            lambda x: x.mean(-1),
            lambda z: [r(32, size(100_000, z))],
            {name: averaged(f) for name, f in SUMS.items()},
            {"every second element": lambda x: x[..., ::2].mean(-1), "BF16 sum": averaged(bf16_sum)},
        ),
        Operator(
            "variance",
            lambda x: x.var(-1, correction=0),
            lambda z: [r(size(64, z), 3000) + 3],
            {name: second(f) for name, f in MOMENTS.items()},
            {"one pass": second(one_pass), "unbiased": lambda x: x.var(-1)},
        ),
        Operator(
            "cumsum",
            lambda x: x.cumsum(-1),
            lambda z: [r(16, size(8192, z))],
            {
                "sequential": cumsum_sequential,
                "blocks and carries": cumsum_blocks,
                "doubling": cumsum_doubling,
            },
            {
                "BF16 carry": cumsum_bf16_carry,
                "carry lost once": lambda x: torch.cat([p.cumsum(-1) for p in x.chunk(2, -1)], -1),
            },
        ),
    ]


def _products() -> list[Operator]:
    def matmul(name: str, m: int, k: int, make: Callable[..., Tensor] = torch.randn) -> Operator:
        inputs = lambda z: [make(size(m, z), size(k, z, 32)), make(size(k, z, 32), size(m, z))]  # noqa: E731
        return Operator(name, torch.matmul, inputs, dict(PRODUCTS), dict(BAD_PRODUCTS))

    qkv = lambda z: [r(4, size(256, z), 64) for _ in range(3)]  # noqa: E731
    return [
        matmul("matmul K=64", 128, 64),
        matmul("matmul K=700", 96, 700),
        matmul("matmul K=4096", 64, 4096),
        matmul("matmul K=2048 positive", 64, 2048, torch.rand),
        Operator(
            "linear + gelu",
            lambda x, w, b: F.gelu(F.linear(x, w, b)),
            lambda z: [r(size(64, z), 512), r(256, 512) / 23, r(256) / 23],
            {name: linear_gelu_with(f) for name, f in PRODUCTS.items()},
            {
                "tanh form": lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"),
                "no bias": lambda x, w, b: F.gelu(x @ w.T),
            },
        ),
        Operator(
            "attention",
            attention,
            qkv,
            {"written out": attention_with(), "flash": flash, "exp2 folded": attention_with(folded_exp2_softmax)}
            | {"3xTF32": attention_with(product=PRODUCTS["3xTF32"]), "online": attention_with(online_softmax)},
            {
                "no mask": attention_with(causal=False),
                "BF16 weights": attention_with(bits=8),
                "FP16 weights": attention_with(bits=11),
                "TF32 products": attention_with(product=lambda a, b: to_bits(a, 11) @ to_bits(b, 11)),
                "rough exp": attention_with(softmax_with(rough_exp)),
                "scale 1e-3 off": attention_with(scale=1.001),
            },
        ),
        Operator(
            "convolution",
            convolution,
            lambda z: [r(2, 32, size(16, z, 8), 16), r(32, 32, 3, 3) / 17],
            {n: convolution_with(PRODUCTS[n]) for n in ("FMA, one k after another", "3xTF32", "3xFP16 scaled")}
            | {"shifted products": shifted_convolution, "matrix product": convolution_with(torch.matmul)},
            {n: convolution_with(f) for n, f in BAD_PRODUCTS.items()},
        ),
    ]


def _fast_convolutions() -> list[Operator]:
    return [
        Operator(
            "convolution by FFT, Winograd",
            convolution,
            lambda z: [r(2, 32, size(16, z, 8), 16), r(32, 32, 3, 3) / 17],
            convolutions.honest(1),
            convolutions.inaccurate(1),
        ),
        Operator(
            "convolution of 34 by 34",
            F.conv2d,
            lambda z: [r(2, 16, 34, 34), r(24, 16, 3, 3) / 12],
            convolutions.honest(0),
            convolutions.inaccurate(0),
        ),
        Operator(
            "long convolution",
            F.conv1d,
            lambda z: [r(4, 1, size(8192, z)), r(4, 1, size(1025, z)) / 32],
            convolutions.honest(0, winograd=False),
            convolutions.inaccurate(0, winograd=False),
        ),
    ]


def _uneven_outputs() -> list[Operator]:
    """Rows of very different scale."""
    row_scaled: list[tuple[str, Variant, Callable[[float], list], dict[str, Variant]]] = [
        (
            "rows times 2^0 to 2^-24",
            chain_uneven,
            lambda z: [uneven(64, size(500, z)), r(size(500, z))],
            {"two steps": lambda x, w: x + x * w},
        ),
        (
            "matmul of uneven rows",
            torch.matmul,
            lambda z: [uneven(64, 256), r(256, size(300, z))],
            {n: PRODUCTS[n] for n in ("FMA, one k after another", "K in blocks of 32", "3xTF32", "split K")},
        ),
        (
            "sums of uneven rows",
            lambda x: x.sum(-1, keepdim=True),
            lambda z: [uneven(300, 1000, octaves=12)],
            {n: _kept(SUMS[n]) for n in ("sequential", "16 lanes", "pairwise")},
        ),
    ]
    return [
        Operator(name, program, inputs, honest, small_row_cheats(program, rows=not name.startswith("sums")))
        for name, program, inputs, honest in row_scaled
    ]


def chain_uneven(x: Tensor, w: Tensor) -> Tensor:
    return x * (1 + w)


def _kept(total: Sum) -> Variant:
    return lambda x: total(x)[..., None]


def _small_outputs() -> list[Operator]:
    """Outputs of 16 to 3,999 elements, of which some are wrong."""
    pointwise = lambda x, y: (x * y).tanh() + x  # noqa: E731
    found = [
        Operator(
            f"tanh(x*y)+x of {count}",
            pointwise,
            lambda z, count=count: [r(count), r(count)],
            {"FMA": lambda x, y: (torch.tanh(x * y).double() + x.double()).float()},
            wrong_share_cheats(pointwise),
        )
        for count in (16, 64, 300, 2000, 3999)
    ]
    row_sum = lambda x: x.sum(-1)  # noqa: E731
    found += [
        Operator(
            f"{rows} row sums",
            row_sum,
            lambda z, rows=rows: [r(rows, 700)],
            dict(SUMS),
            wrong_share_cheats(row_sum) | BAD_SUMS,
        )
        for rows in (16, 64, 300, 2000)
    ]
    found += [
        Operator(
            f"matmul to {rows} by {columns}",
            torch.matmul,
            lambda z, rows=rows, columns=columns: [r(rows, 400), r(400, columns)],
            dict(PRODUCTS),
            wrong_share_cheats(torch.matmul) | BAD_PRODUCTS,
        )
        for rows, columns in ((4, 4), (8, 8), (15, 20), (40, 50))
    ]
    softmax = lambda x: x.softmax(-1)  # noqa: E731
    found += [
        Operator(
            f"softmax of {rows} by {columns}",
            softmax,
            lambda z, rows=rows, columns=columns: [r(rows, columns)],
            {n: f for n, f in SOFTMAXES.items() if n != "32 lanes"},
            wrong_share_cheats(softmax),
        )
        for rows, columns in ((2, 8), (4, 16), (20, 15), (16, 125))
    ]
    return found


def _large_outputs() -> list[Operator]:
    softmax = lambda x: x.softmax(-1)  # noqa: E731
    return [
        Operator("softmax of 300,000", softmax, lambda z: [r(300, 1000)], {}, single_cheats(softmax)),
        Operator(
            "matmul to 300 by 400", torch.matmul, lambda z: [r(300, 64), r(64, 400)], {}, single_cheats(torch.matmul)
        ),
    ]


def _narrow() -> list[Operator]:
    def bf16(make: Callable[[float], list]) -> Callable[[float], list]:
        return lambda z: [t.bfloat16() for t in make(z)]

    def fp16(make: Callable[[float], list]) -> Callable[[float], list]:
        return lambda z: [t.half() for t in make(z)]

    square = lambda z: [r(size(128, z), 512), r(512, 128)]  # noqa: E731
    rows = lambda z: [r(size(64, z), 1000)]  # noqa: E731
    mine = {
        "FP32 accumulation": in_float(torch.matmul),
        "K in blocks": in_float(k_blocks),
        "split K": in_float(split_k),
    }
    return [
        Operator("bf16 matmul", torch.matmul, bf16(square), mine, {"BF16 accumulation": bf16_accumulated}, narrow=True),
        Operator(
            "fp16 matmul",
            torch.matmul,
            fp16(square),
            mine,
            {"BF16 operands": lambda a, b: (a.bfloat16() @ b.bfloat16()).half()},
            narrow=True,
        ),
        Operator(
            "bf16 softmax",
            lambda x: x.softmax(-1),
            bf16(rows),
            of_half(SOFTMAXES),
            {"BF16 sum": in_float(softmax_with(lambda v: to_bits(torch.exp(v), 8), bf16_sum))},
            narrow=True,
        ),
        Operator(
            "bf16 rms norm",
            lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-6),
            bf16(lambda z: [*rows(z), 1 + r(1000) / 8]),
            of_half({n: rms_norm_with(f) for n, f in SUMS.items()}),
            {"BF16 sum": in_float(rms_norm_with(bf16_sum)), "every step in BF16": rms_norm},
            narrow=True,
        ),
        Operator(
            "fp16 gelu",
            F.gelu,
            fp16(lambda z: [r(size(65536, z))]),
            of_half({"erf written out": gelu_erf}),
            {"every step in FP16": gelu_erf, "tanh form": lambda x: F.gelu(x, approximate="tanh")},
            narrow=True,
        ),
        Operator(
            "bf16 relu((x+y)*s+b)",
            chain,
            bf16(lambda z: [r(size(1024, z), 64), r(size(1024, z), 64), r(64), r(64)]),
            of_half({"FP32 inside": chain, "FMA": chain_fused}) | {"the same steps": chain},
            {},
            narrow=True,
        ),
        Operator(
            "bf16 attention",
            attention,
            bf16(lambda z: [r(4, size(256, z), 64) for _ in range(3)]),
            {"written out": attention_with(), "flash": flash, "BF16 weights": attention_with(bits=8)},
            {"FP8 weights": attention_with(bits=4), "no mask": attention_with(causal=False)},
            narrow=True,
        ),
    ]


OPERATORS: list[Operator] = _pointwise() + _rows() + _sums() + _products() + _narrow()
LOCAL_OPERATORS: list[Operator] = _fast_convolutions() + _uneven_outputs() + _small_outputs() + _large_outputs()
"""Fast convolutions, and outputs that are wrong in a few places only."""
