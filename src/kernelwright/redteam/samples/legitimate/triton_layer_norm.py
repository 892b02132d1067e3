"""One Triton program per row: the mean with its rounding correction, the variance, the reference's weights.

Problem: layer_norm
Device: cuda
"""

import torch
import triton
import triton.language as tl


@triton.jit
def norm_row(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    within = at < columns
    x = tl.load(x_ptr + row + at, mask=within, other=0.0)
    away = tl.where(within, x - tl.sum(x, axis=0) / columns, 0.0)
    away = tl.where(within, away - tl.sum(away, axis=0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(away * away, axis=0) / columns + 1e-5)
    weight = tl.load(weight_ptr + at, mask=within, other=0.0)
    bias = tl.load(bias_ptr + at, mask=within, other=0.0)
    tl.store(out_ptr + row + at, away * scale * weight + bias, mask=within)


def layer_norm(x, norm_weight, norm_bias):
    x, out = x.contiguous(), torch.empty_like(x)
    rows, columns = x.shape
    norm_row[(rows,)](x, norm_weight, norm_bias, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out
