"""Kernels of every quality, emulated with torch and NumPy on the CPU.

`sequential` adds one element after another in FP32 as one thread would, `lanes` as many do; tensor cores are products
of operands rounded to their significant bits; a fused multiply-add is computed in FP64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from kernelwright.verification.accuracy.error import round_to_bits

Variant = Callable[..., Tensor]
Sum = Callable[[Tensor], Tensor]
LOG2E = math.log2(math.e)
ROOT_HALF = 0.5**0.5


def to_bits(x: Tensor, bits: int) -> Tensor:
    """FP32 rounded to `bits` significant bits: 11 is TF32, 8 is BF16, 4 is FP8 E4M3 (with FP32's range)."""
    return round_to_bits(x.double(), bits).to(x.dtype)


def floating(fn: Callable[[Tensor], Tensor], args: tuple) -> list:
    return [fn(a.contiguous()) if isinstance(a, Tensor) and a.dtype.is_floating_point else a for a in args]


# ---- Sums


def sequential(x: Tensor) -> Tensor:
    """FP32 sum over the last dimension, one element after another."""
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(np.add.accumulate(x.numpy(), axis=-1, dtype=np.float32)[..., -1].copy())


def lanes(x: Tensor, count: int) -> Tensor:
    """`count` threads add every count-th element, then one adds their sums."""
    whole = x.shape[-1] // count * count
    parts = x[..., :whole].unflatten(-1, (-1, count)).transpose(-1, -2).contiguous()
    return sequential(torch.cat([sequential(parts), x[..., whole:]], -1))


def pairwise(x: Tensor) -> Tensor:
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2))
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def kahan(x: Tensor) -> Tensor:
    """Compensated, in 64 lanes so that NumPy does not loop over single numbers."""
    x = F.pad(x, (0, -x.shape[-1] % 64)).unflatten(-1, (-1, 64))
    total, lost = torch.zeros_like(x[..., 0, :]), torch.zeros_like(x[..., 0, :])
    for i in range(x.shape[-2]):
        term = x[..., i, :] - lost
        grown = total + term
        lost, total = (grown - total) - term, grown
    return sequential(total)


def reversed_sum(x: Tensor) -> Tensor:
    return sequential(x.flip(-1))


def in_blocks(x: Tensor, block: int = 128) -> Tensor:
    return sequential(torch.stack([b.sum(-1) for b in x.split(block, -1)], -1))


def torch_sum(x: Tensor) -> Tensor:
    return x.sum(-1)


SUMS = {
    "sequential": sequential,
    "reversed": reversed_sum,
    "16 lanes": lambda x: lanes(x, 16),
    "256 lanes": lambda x: lanes(x, 256),
    "pairwise": pairwise,
    "Kahan": kahan,
    "blocks": in_blocks,
}


def bf16_sum(x: Tensor) -> Tensor:
    """Pairwise with each partial sum rounded to BF16."""
    while x.shape[-1] > 1:
        x = F.pad(x, (0, x.shape[-1] % 2))
        x = to_bits(x[..., ::2] + x[..., 1::2], 8)
    return x[..., 0]


def part_in_bf16(x: Tensor) -> Tensor:
    cut = x.shape[-1] // 4
    return x[..., cut:].sum(-1) + to_bits(x[..., :cut].contiguous(), 8).sum(-1)


BAD_SUMS = {"BF16 sum": bf16_sum, "part in BF16": part_in_bf16}


def averaged(total: Sum) -> Variant:
    return lambda x: total(x) / x.shape[-1]


# ---- Products


def split(x: Tensor, bits: int, parts: int) -> list[Tensor]:
    """x as a sum of numbers of `bits` significant bits."""
    found = []
    for _ in range(parts):
        found.append(to_bits(x, bits))
        x = x - found[-1]
    return found


def split_product(a: Tensor, b: Tensor, bits: int, parts: int = 2) -> Tensor:
    """Products of the parts whose orders together stay below `parts`, small ones first: 3xTF32 for 11 bits, 2 parts."""
    left, right_ = split(a, bits, parts), split(b, bits, parts)
    pairs = sorted(((i, j) for i in range(parts) for j in range(parts) if i + j < parts), key=sum, reverse=True)
    return sum((left[i] @ right_[j] for i, j in pairs), torch.zeros(()))


def scaled_fp16_split(a: Tensor, b: Tensor) -> Tensor:
    """Three FP16 products, rows and columns scaled by powers of two, the low part shifted by 2^11."""
    row = torch.exp2(torch.floor(torch.log2(a.abs().amax(-1, keepdim=True).clamp_min(1e-30))))
    col = torch.exp2(torch.floor(torch.log2(b.abs().amax(-2, keepdim=True).clamp_min(1e-30))))
    (ah, al), (bh, bl) = _halves(a / row), _halves(b / col)
    return (ah @ bh + (ah @ bl + al @ bh) * 2.0**-11) * row * col


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    high = x.half().float()
    return high, ((x - high) * 2.0**11).half().float()


def outer_products(a: Tensor, b: Tensor, fused: bool = True) -> Tensor:
    """One k after another in FP32, with a fused multiply-add (emulated in FP64) or a rounded product."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        if fused:
            total = (total.double() + a[:, k, None].double() * b[k].double()).float()
        else:
            total = total + a[:, k, None] * b[k]
    return total


def k_blocks(a: Tensor, b: Tensor, block: int = 32) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], block):
        total = total + a[:, k : k + block] @ b[k : k + block]
    return total


def split_k(a: Tensor, b: Tensor, parts: int = 4) -> Tensor:
    return sum((x @ y for x, y in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True)), torch.zeros(()))


def part_of_k_in_bf16(a: Tensor, b: Tensor) -> Tensor:
    cut = a.shape[1] // 4
    return a[:, cut:] @ b[cut:] + to_bits(a[:, :cut].contiguous(), 8) @ to_bits(b[:cut], 8)


def bf16_accumulated(a: Tensor, b: Tensor, block: int = 16) -> Tensor:
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], block):
        total = to_bits(total + a[:, k : k + block].float() @ b[k : k + block].float(), 8)
    return total.to(a.dtype)


PRODUCTS = {
    "FMA, one k after another": outer_products,
    "rounded products, one k after another": lambda a, b: outer_products(a, b, False),
    "K in blocks of 32": k_blocks,
    "split K": split_k,
    "3xTF32": lambda a, b: split_product(a, b, 11),
    "3xFP16 scaled": scaled_fp16_split,
    "6xBF16": lambda a, b: split_product(a, b, 8, 3),
}
BAD_PRODUCTS = {
    "3xBF16": lambda a, b: split_product(a, b, 8),
    "part of K in BF16": part_of_k_in_bf16,
    "BF16 accumulation": bf16_accumulated,
    "one operand TF32": lambda a, b: a @ to_bits(b, 11),
    "2xTF32": lambda a, b: to_bits(a, 11) @ b,
    "a k left out": lambda a, b: a[:, :-1] @ b[:-1],
}


# ---- Row operations


def rough_exp(x: Tensor) -> Tensor:
    """An exponential that is 1e-4 off, as a short polynomial is."""
    return torch.exp(x) * (1 + 1e-4 * torch.cos(40 * x))


def exp2_form(x: Tensor) -> Tensor:
    return torch.exp2(x * LOG2E)


def softmax_with(
    exp: Callable[[Tensor], Tensor] = torch.exp,
    total: Sum = torch_sum,
    shift: bool = True,
    one_division: bool = False,
) -> Variant:
    def variant(x: Tensor) -> Tensor:
        e = exp(x - x.amax(-1, keepdim=True) if shift else x)
        t = total(e)[..., None]
        return e * (1 / t) if one_division else e / t

    return variant


def online(x: Tensor, block: int = 64) -> tuple[Tensor, Tensor]:
    """Running maximum and rescaled running sum, block by block."""
    top = torch.full(x.shape[:-1], -math.inf)
    total = torch.zeros(x.shape[:-1])
    for part in x.split(block, -1):
        new = torch.maximum(top, part.amax(-1))
        total = total * torch.exp(top - new) + torch.exp(part - new[..., None]).sum(-1)
        top = new
    return top, total


def online_softmax(x: Tensor) -> Tensor:
    top, total = online(x)
    return torch.exp(x - top[..., None]) / total[..., None]


def folded_exp2_softmax(x: Tensor) -> Tensor:
    """exp2(x*log2e - max*log2e) with the product fused into the subtraction, as attention kernels write it."""
    shift = x.amax(-1, keepdim=True) * LOG2E
    e = torch.exp2((x.double() * LOG2E - shift.double()).float())
    return e / e.sum(-1, keepdim=True)


def welford(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance, one element after another."""
    mean, m2 = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for i in range(x.shape[-1]):
        delta = x[..., i] - mean
        mean = mean + delta / (i + 1)
        m2 = m2 + delta * (x[..., i] - mean)
    return mean, m2 / x.shape[-1]


def two_pass(x: Tensor, total: Sum) -> tuple[Tensor, Tensor]:
    mean = total(x) / x.shape[-1]
    return mean, total((x - mean[..., None]).square()) / x.shape[-1]


def one_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean(-1)
    return mean, x.square().mean(-1) - mean.square()


def chan(x: Tensor, block: int = 64) -> tuple[Tensor, Tensor]:
    """Blocks' means and squares merged two by two."""
    mean, m2, n = torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1]), 0
    for part in x.split(block, -1):
        m, size = part.mean(-1), part.shape[-1]
        delta = m - mean
        m2 = m2 + (part - m[..., None]).square().sum(-1) + delta.square() * (n * size / (n + size))
        mean, n = mean + delta * (size / (n + size)), n + size
    return mean, m2 / n


def layer_norm_with(moments: Callable[[Tensor], tuple[Tensor, Tensor]], eps: float = 1e-5, bits: int = 0) -> Variant:
    def variant(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        mean, variance = moments(x)
        normal = (x - mean[..., None]) * torch.rsqrt(variance + eps)[..., None]
        return (to_bits(normal, bits) if bits else normal) * weight + bias

    return variant


def second(moments: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Variant:
    return lambda x: moments(x)[1]


MOMENTS = {
    "Welford": welford,
    "two passes, sequential": lambda x: two_pass(x, sequential),
    "two passes, 32 lanes": lambda x: two_pass(x, lambda v: lanes(v, 32)),
    "merged blocks": chan,
}


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def rms_norm_with(total: Sum, eps: float = 1e-6, divide: bool = False) -> Variant:
    def variant(x: Tensor, weight: Tensor) -> Tensor:
        mean = total(x * x)[..., None] / x.shape[-1] + eps
        return x / mean.sqrt() * weight if divide else x * (torch.rsqrt(mean) * weight)

    return variant


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(logits, target)


def cross_entropy_with(lse: Callable[[Tensor], Tensor]) -> Variant:
    def variant(logits: Tensor, target: Tensor) -> Tensor:
        return (lse(logits) - logits.gather(1, target[:, None])[:, 0]).mean()

    return variant


def log_sum_exp_with(
    exp: Callable[[Tensor], Tensor] = torch.exp,
    total: Sum = torch_sum,
    shift: bool = True,
) -> Variant:
    def variant(x: Tensor) -> Tensor:
        top = x.amax(-1) if shift else torch.zeros(x.shape[:-1])
        return torch.log(total(exp(x - top[..., None]))) + top

    return variant


def online_lse(x: Tensor) -> Tensor:
    top, total = online(x)
    return top + torch.log(total)


def minus(lse: Sum) -> Variant:
    return lambda x: x - lse(x)[..., None]


def base_2_lse(x: Tensor) -> Tensor:
    y = x * LOG2E
    top = y.amax(-1)
    return (torch.log2(torch.exp2(y - top[..., None]).sum(-1)) + top) / LOG2E


# ---- Attention, convolution, rotary


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal, (heads, length, width)."""
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


def attention_with(
    softmax: Variant | None = None,
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
    causal: bool = True,
    bits: int = 0,
    scale: float = 1.0,
) -> Variant:
    weigh = softmax or softmax_with()

    def variant(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        dtype = q.dtype
        q, k, v = q.float(), k.float(), v.float()
        scores = torch.stack([product(a, b.T.contiguous()) for a, b in zip(q, k, strict=True)])
        scores = scores * (scale / math.sqrt(q.shape[-1]))
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        weights = weigh(scores)
        weights = to_bits(weights, bits) if bits else weights
        return torch.stack([product(a, b) for a, b in zip(weights, v, strict=True)]).to(dtype)

    return variant


def flash(q: Tensor, k: Tensor, v: Tensor, block: int = 32) -> Tensor:
    """Online softmax over blocks of keys with a rescaled accumulator, FP32, output in the input's dtype."""
    dtype = q.dtype
    q, k, v = q.float() * (LOG2E / math.sqrt(q.shape[-1])), k.float(), v.float()
    rows = torch.arange(q.shape[1])[:, None]
    top, total, out = torch.full(q.shape[:2], -math.inf), torch.zeros(q.shape[:2]), torch.zeros_like(q)
    for start in range(0, k.shape[1], block):
        s = q @ k[:, start : start + block].transpose(1, 2)
        s = s.masked_fill(rows < start + torch.arange(s.shape[-1]), -math.inf)
        new = torch.maximum(top, s.amax(-1))
        p, old = torch.exp2(s - new[..., None]), torch.exp2(top - new)
        total, out = total * old + p.sum(-1), out * old[..., None] + p @ v[:, start : start + block]
        top = new
    return (out / total[..., None]).to(dtype)


def convolution(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


def convolution_with(product: Callable[[Tensor, Tensor], Tensor]) -> Variant:
    """As a matrix product over unfolded patches."""

    def variant(x: Tensor, w: Tensor) -> Tensor:
        columns = F.unfold(x, 3, padding=1).transpose(0, 1).flatten(1)
        out = product(w.flatten(1), columns)
        return out.unflatten(1, (x.shape[0], *x.shape[2:])).transpose(0, 1).contiguous()

    return variant


def shifted_convolution(x: Tensor, w: Tensor) -> Tensor:
    """Nine shifted 1x1 products added up."""
    padded = F.pad(x, (1, 1, 1, 1))
    h, v = x.shape[2:]
    parts = [
        torch.einsum("oc,bchw->bohw", w[:, :, i, j], padded[:, :, i : i + h, j : j + v])
        for i in range(3)
        for j in range(3)
    ]
    return sum(parts, torch.zeros(()))


def rotary(x: Tensor, angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rotary_fused(x: Tensor, angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    a, b = x.chunk(2, -1)
    first = (a.double() * cos.double() - (b * sin).double()).float()
    return torch.cat([first, (b.double() * cos.double() + (a * sin).double()).float()], -1)


def rotary_complex(x: Tensor, angle: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    turned = torch.complex(a.contiguous(), b.contiguous()) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1)


def rotary_with(table: Callable[[Tensor], Tensor]) -> Variant:
    def variant(x: Tensor, angle: Tensor) -> Tensor:
        cos, sin = table(angle.cos()), table(angle.sin())
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    return variant


# ---- Pointwise


def chain(x: Tensor, y: Tensor, s: Tensor, b: Tensor) -> Tensor:
    return torch.relu((x + y) * s + b)


def chain_fused(x: Tensor, y: Tensor, s: Tensor, b: Tensor) -> Tensor:
    return torch.relu(((x + y).double() * s.double() + b.double()).to(x.dtype))


def gelu_erf(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.erf(x * ROOT_HALF))


def linear_gelu_with(product: Callable[[Tensor, Tensor], Tensor]) -> Variant:
    return lambda x, w, b: gelu_erf(product(x, w.T.contiguous()) + b)


def cumsum_sequential(x: Tensor) -> Tensor:
    return torch.from_numpy(np.add.accumulate(x.numpy(), -1, dtype=np.float32))


def cumsum_blocks(x: Tensor, block: int = 128) -> Tensor:
    """Scans of blocks, each shifted by the sum of those before."""
    parts = [cumsum_sequential(part) for part in x.split(block, -1)]
    carry, done = torch.zeros(x.shape[:-1]), []
    for part in parts:
        done.append(part + carry[..., None])
        carry = carry + part[..., -1]
    return torch.cat(done, -1)


def cumsum_doubling(x: Tensor) -> Tensor:
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], -1)
        step *= 2
    return x


def cumsum_bf16_carry(x: Tensor, block: int = 128) -> Tensor:
    carry, done = torch.zeros(x.shape[:-1]), []
    for part in x.split(block, -1):
        done.append(part.cumsum(-1) + carry[..., None])
        carry = to_bits(carry + part.sum(-1), 8)
    return torch.cat(done, -1)


def in_float(program: Variant) -> Variant:
    """A 16-bit task with FP32 inside, rounded once: the honest way to fuse it."""
    return lambda *args: program(*floating(torch.Tensor.float, args)).to(args[0].dtype)


def of_half(variants: dict[str, Variant]) -> dict[str, Variant]:
    return {name: in_float(variant) for name, variant in variants.items()}


SOFTMAXES = {
    "max, exp, sum, divide": softmax_with(),
    "exp2(x*log2e)": softmax_with(exp2_form),
    "exp2 folded": folded_exp2_softmax,
    "sequential sum": softmax_with(total=sequential),
    "32 lanes": softmax_with(total=lambda e: lanes(e, 32)),
    "online": online_softmax,
    "one reciprocal": softmax_with(one_division=True),
}
LSES = {
    "max, exp, sum, log": log_sum_exp_with(),
    "exp2(x*log2e)": log_sum_exp_with(exp2_form),
    "base 2 throughout": base_2_lse,
    "online": online_lse,
    "sequential": log_sum_exp_with(total=sequential),
}
