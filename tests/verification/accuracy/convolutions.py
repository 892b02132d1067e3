"""Convolutions by FFT and Winograd, honest in FP32 and with operands of fewer bits, emulated with torch on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from kernelwright.verification.accuracy.error import round_to_bits

Variant = Callable[..., Tensor]
Rounding = Callable[[Tensor], Tensor]


def keep(value: Tensor) -> Tensor:
    return value


def bits(count: int) -> Rounding:
    """Real or complex FP32 values rounded to `count` significant bits."""

    def rounded(value: Tensor) -> Tensor:
        if value.is_complex():
            return torch.complex(rounded(value.real), rounded(value.imag))
        return round_to_bits(value.double(), count).to(value.dtype)

    return rounded


def product_in_parts(count: int, parts: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A batched product of operands split into `parts` parts of `count` bits: 3xBF16 for 8 bits, 2 parts."""

    def split(value: Tensor) -> list[Tensor]:
        found = []
        for _ in range(parts):
            found.append(bits(count)(value))
            value = value - found[-1]
        return found

    def product(a: Tensor, b: Tensor) -> Tensor:
        left, right = split(a), split(b)
        pairs = [(i, j) for i in range(parts) for j in range(parts) if i + j < parts]
        return sum((left[i] @ right[j] for i, j in sorted(pairs, key=sum, reverse=True)), torch.zeros(()))

    return product


def fft_convolution(padding: int = 1, spectrum: Rounding = keep, operand: Rounding = keep) -> Variant:
    """Convolution over the last one or two dimensions by real FFTs of the padded size."""

    def variant(x: Tensor, w: Tensor) -> Tensor:
        spatial = x.dim() - 2
        dims = tuple(range(2, 2 + spatial))
        size = [x.shape[d] + 2 * padding for d in dims]
        out_size = [n - w.shape[d] + 1 for n, d in zip(size, dims, strict=True)]
        padded = F.pad(operand(x), (padding, padding) * spatial)
        fx = spectrum(torch.fft.rfftn(padded, dim=dims))
        fw = spectrum(torch.fft.rfftn(operand(w), s=size, dim=dims).conj())
        out = torch.fft.irfftn(torch.einsum("nc...,oc...->no...", fx, fw), s=size, dim=dims)
        for dim, length in zip(dims, out_size, strict=True):
            out = out.narrow(dim, 0, length)
        return out.contiguous()

    return variant


WINOGRAD_2 = (
    [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
    [[1, 1, 1, 0], [0, 1, -1, -1]],
)
WINOGRAD_4 = (
    [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
     [0, 4, 0, -5, 0, 1]],
    [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
     [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]],
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
)  # fmt: skip
"""Transforms of the input, the filter and the output: F(2x2, 3x3) and F(4x4, 3x3) of Lavin and Gray."""


def winograd_convolution(
    transforms: tuple[list, list, list] = WINOGRAD_2,
    padding: int = 1,
    product: Callable[[Tensor, Tensor], Tensor] = torch.matmul,
) -> Variant:
    """Convolution of 3 by 3 filters by Winograd's minimal filtering, each transform in FP32."""
    to_input, to_filter, to_output = (torch.tensor(one, dtype=torch.float32) for one in transforms)
    tile, out_tile = to_input.shape[0], to_output.shape[0]

    def variant(x: Tensor, w: Tensor) -> Tensor:
        n, c, h, v = x.shape
        rows, columns = h + 2 * padding - 2, v + 2 * padding - 2
        tiles_h, tiles_v = -(-rows // out_tile), -(-columns // out_tile)
        bottom, right = tiles_h * out_tile + 2 - h - padding, tiles_v * out_tile + 2 - v - padding
        padded = F.pad(x, (padding, right, padding, bottom))
        patches = padded.unfold(2, tile, out_tile).unfold(3, tile, out_tile)  # n c th tv tile tile
        data = to_input @ patches @ to_input.T
        filters = to_filter @ w @ to_filter.T
        left = filters.permute(2, 3, 0, 1).contiguous()  # tile tile o c
        right_ = data.permute(4, 5, 1, 0, 2, 3).reshape(tile, tile, c, -1)
        sums = product(left, right_).view(tile, tile, w.shape[0], n, tiles_h, tiles_v).permute(3, 2, 4, 5, 0, 1)
        out = to_output @ sums @ to_output.T  # n o th tv out_tile out_tile
        out = out.permute(0, 1, 2, 4, 3, 5).reshape(n, w.shape[0], tiles_h * out_tile, tiles_v * out_tile)
        return out[:, :, :rows, :columns].contiguous()

    return variant


def tf32_product(a: Tensor, b: Tensor) -> Tensor:
    return bits(11)(a) @ bits(11)(b)


def honest(padding: int, winograd: bool = True) -> dict[str, Variant]:
    found = {"FFT": fft_convolution(padding)}
    if winograd:
        found["Winograd F(2x2,3x3)"] = winograd_convolution(WINOGRAD_2, padding)
        found["Winograd F(4x4,3x3)"] = winograd_convolution(WINOGRAD_4, padding)
    return found


def inaccurate(padding: int, winograd: bool = True) -> dict[str, Variant]:
    found = {
        "FFT, TF32 spectra": fft_convolution(padding, spectrum=bits(11)),
        "FFT, BF16 spectra": fft_convolution(padding, spectrum=bits(8)),
        "FFT, 16-bit spectra": fft_convolution(padding, spectrum=bits(16)),
        "FFT, TF32 operands": fft_convolution(padding, operand=bits(11)),
    }
    if winograd:
        found["Winograd F(2x2,3x3), TF32"] = winograd_convolution(WINOGRAD_2, padding, tf32_product)
        found["Winograd F(2x2,3x3), 3xBF16"] = winograd_convolution(WINOGRAD_2, padding, product_in_parts(8, 2))
        found["Winograd F(4x4,3x3), 3xBF16"] = winograd_convolution(WINOGRAD_4, padding, product_in_parts(8, 2))
    return found
