"""The tiles with which contractions are tried."""

from __future__ import annotations

from collections.abc import Sequence, Set

from kernelwright.compiler.regions.contraction import ContractionRegion, Filters, Windows
from kernelwright.compiler.triton.operand_packing import PackedLayout, power_of_two
from kernelwright.compiler.triton.target import Target, current_target
from kernelwright.core.record import Record
from kernelwright.core.units import DTYPE_BYTES

DIRECT, SPLIT, PACKED = "direct", "split", "packed"
MAX_DIRECT_CHANNELS = 32
"""Windows of images with more channels are not read directly: their elements are far apart."""
MIN_BLOCK_K = 16
"""The shortest step of tensor cores for FP16."""
MIN_WGMMA_ROWS = 64
_SPLIT_TILES = ((128, 128, 64, 8, 3), (128, 64, 64, 8, 4), (64, 64, 64, 4, 4))
_TF32_TILES = ((128, 256, 32, 8, 3), (128, 128, 32, 8, 3), (64, 128, 32, 4, 4), (64, 64, 32, 4, 4))
_HALF_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4), (64, 128, 64, 4, 4), (64, 64, 64, 4, 4))
_DIRECT_TILES = ((64, 128, 16, 4, 2), (32, 128, 16, 4, 2))
"""With two stages: with three, half of the results of three-dimensional windows were wrong (Triton 3.6, H200)."""
_FMA_TILES = ((64, 64, 16, 4, 3), (64, 32, 32, 4, 3), (64, 16, 32, 4, 3), (32, 32, 32, 4, 3))
"""For FP32 as it is, where splitting the operands would move more bytes than the product."""
MAX_FMA_FLOPS_PER_BYTE = 16
"""Products with more take longer without tensor cores: an H100 computes 60 TFLOP/s in FP32 at 3 TB/s."""
_PACKED_TILES = (
    (128, 128, 64, 8, 3), (128, 256, 64, 8, 3), (128, 128, 32, 4, 4), (64, 256, 32, 4, 4), (64, 128, 64, 4, 4),
    (64, 256, 64, 8, 3), (64, 128, 32, 4, 4), (64, 128, 16, 4, 4), (32, 256, 32, 4, 4), (32, 128, 16, 4, 4),
)  # fmt: skip
_FP32_TILES = (
    (128, 128, 64, 8, 3), (128, 128, 32, 8, 4), (64, 256, 32, 8, 3), (64, 128, 64, 4, 4), (64, 128, 32, 4, 4),
    (64, 128, 16, 4, 4), (32, 256, 32, 8, 3), (32, 128, 16, 4, 4),
)  # fmt: skip
"""For packed FP32, whose two terms take registers next to the sums: larger tiles, or with fewer warps, have 80 to 700
bytes of local memory for each thread."""

_PHASE_TILES = (
    (64, 128, 32, 4, 4), (64, 256, 64, 8, 3), (64, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 32, 8, 3),
    (64, 256, 16, 8, 3), (64, 128, 16, 4, 4), (32, 256, 32, 4, 3), (32, 256, 16, 4, 3), (32, 128, 16, 4, 4),
)  # fmt: skip
"""For several phases side by side: with more than 64 sums a thread, which are interleaved before the epilogue, its
registers do not hold them."""
_LOW_TILES = ((16, 256, 32, 4, 3), (16, 256, 16, 4, 4), (16, 128, 16, 4, 4))
MAX_FP32_WINDOWS = 8192
"""Elements of images in a step of FP32: the two terms of more do not fit the registers next to several sums."""
MAX_LOW_ROWS, MAX_LOW_PHASE_ROWS = 8, 16
"""Convolutions with more rows in a group have tiles of at least 32 rows."""


class ContractionConfig(Record, frozen=True, kw_only=True):
    """A tile of the result, and the steps along k.

    Attributes:
        operands: `direct`, `split` (FP32 in two FP16 terms) or `packed` (channels last).
    """

    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    num_warps: int
    num_stages: int
    operands: str = DIRECT


def generate_contraction_configs(region: ContractionRegion, target: Target | None = None) -> list[ContractionConfig]:
    """Return the configs that can run a contraction, most promising first; by default for the GPU that is here."""
    shared_bytes = (target or current_target()).shared_bytes
    return [one for one in _contraction_configs(region) if _pipeline_bytes(region, one) <= shared_bytes]


def _pipeline_bytes(region: ContractionRegion, config: ContractionConfig) -> int:
    """The least shared memory that the tiles of both operands take while a pipeline loads them."""
    one = region.contraction
    element_bytes, tiles, columns = DTYPE_BYTES[one.left.dtype], 1, config.BLOCK_N
    if config.operands == PACKED and isinstance(one.right, Windows):
        phases = one.right.phase_taps[-1]
        tiles, columns = max(map(phases.count, phases)), columns // power_of_two(len(phases))
        if one.tf32:  # as scaled FP16; two terms of FP16 are as large as FP32
            element_bytes = DTYPE_BYTES["float16"]
    return (config.num_stages - 1) * tiles * (config.BLOCK_M + columns) * config.BLOCK_K * element_bytes


def _contraction_configs(region: ContractionRegion) -> list[ContractionConfig]:
    one = region.contraction
    if isinstance(one.right, Windows):
        layout = PackedLayout(windows=one.right, scaled=one.tf32)
        dividing = [tile for tile in _packed_tiles(one.m, layout) if not any(run % tile[2] for run in layout.runs)]
        dividing = _within_depth(dividing, layout.depth)
        rows = _useful_rows(one.m, {tile[0] for tile in dividing})
        if one.right.phases[-1] > 1 and one.m % MIN_WGMMA_ROWS == 0:  # two tiles hide each other's stores
            rows.add(MIN_WGMMA_ROWS)
        packed = [tile for tile in dividing if tile[0] in rows]
        configs = _fitting(packed, one.m, one.n, PACKED)
        if one.right.channels <= MAX_DIRECT_CHANNELS and _is_plain(region):
            configs += _fitting(_DIRECT_TILES, one.m, one.n, DIRECT)
        return configs
    tiles, operands = _HALF_TILES, DIRECT
    if one.left.dtype == "float32":
        tiles, operands = (_TF32_TILES, DIRECT) if one.tf32 else (_SPLIT_TILES, SPLIT)
    fma = []
    if operands == SPLIT and one.flops <= MAX_FMA_FLOPS_PER_BYTE * sum(region.bytes_moved):
        fma = _fitting(_within_depth(_FMA_TILES, one.k), one.m, one.n, DIRECT)
    return fma + _fitting(_within_depth(tiles, one.k), one.m, one.n, operands)


def _packed_tiles(m: int, layout: PackedLayout) -> Sequence[tuple[int, ...]]:
    """The tiles for packed operands with m rows in a group."""
    is_fp32 = layout.dtype == "float32"
    if layout.windows.phases[-1] == 1:
        tiles = _FP32_TILES if is_fp32 else _PACKED_TILES
        return tiles if m > MAX_LOW_ROWS else _LOW_TILES
    tiles = _PHASE_TILES if m > MAX_LOW_PHASE_ROWS else _LOW_TILES
    return [tile for tile in tiles if tile[1] * tile[2] <= MAX_FP32_WINDOWS] if is_fp32 else tiles


def _within_depth(tiles: Sequence[tuple[int, ...]], k: int) -> list[tuple[int, ...]]:
    """Tiles with steps no longer than a sum over k, and no more stages than steps: their shared memory would keep other
    programs from the multiprocessor."""
    limited = []
    for m, n, block_k, num_warps, num_stages in tiles:
        block_k = min(block_k, max(power_of_two(k), MIN_BLOCK_K))
        limited.append((m, n, block_k, num_warps, min(num_stages, -(-k // block_k))))
    return list(dict.fromkeys(limited))


def _fitting(tiles: Sequence[tuple[int, ...]], m: int, n: int, operands: str) -> list[ContractionConfig]:
    """The configs whose tiles are not far larger than the result; the smallest always."""
    names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    limits = [power_of_two(max(size, min(tile[dim] for tile in tiles))) for dim, size in enumerate((m, n))]
    fitting = [tile for tile in tiles if tile[0] <= limits[0] and tile[1] <= limits[1]]
    return [ContractionConfig(**dict(zip(names, tile, strict=True)), operands=operands) for tile in fitting]


def _useful_rows(m: int, sizes: Set[int]) -> set[int]:
    """The heights of tiles: the largest that is not twice the result's, and smaller ones without unused rows."""
    heights = sorted(sizes, reverse=True)
    largest = next((height for height in heights if height < 2 * m), heights[-1])
    exact = next((height for height in heights if m % height == 0), largest)
    return {largest, exact}


def _is_plain(region: ContractionRegion) -> bool:
    """Whether a convolution is not transposed."""
    filters = region.contraction.left
    return isinstance(filters, Filters) and set(filters.tap_step) == {1}
