"""Configurations of the GEMM kernel: tiles, pipeline, clusters; the constraints are predicates with their reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

SWIZZLE_BYTES = 128
TMA_ALIGNMENT = 16
MAX_SHARED_BYTES = 227 * 1024
STORE_BUFFER_BYTES, STORE_BUFFERS = 64 * SWIZZLE_BYTES, 2
BARRIER_BYTES = 256
"""At least the mbarriers of a pipeline of 16 stages."""
REGISTERS = {1: (0, 0), 2: (24, 240), 3: (32, 160)}
"""Registers per thread of the producer and the consumers, by the number of consumer warpgroups; 0: as launched."""
COSTLY_ACTIVATIONS = ("GeluErf", "GeluErfBf16", "GeluTanh", "Silu")
"""Those of ten instructions or more."""


@dataclass(frozen=True)
class GemmConfig:
    """How a product is computed.

    Attributes:
        block_m, block_n: tile of a block.
        num_stages: buffers of the pipeline.
        num_consumers: warpgroups that multiply.
        cluster_m, cluster_n: blocks that share tiles of B, or of A, by multicast.
        split_k: blocks of a cluster that share the steps of K of one tile.
        terms: 2 for FP32 operands as pairs of FP16.
        promote_tiles: steps of 128 bytes along K after which sums are added in FP32 registers; 0: at the end.
        swapped: rows of the product are the contiguous dimension of the output.
        split_in_loop: with two terms, those of the rows of the product are made in the main loop.
        raster_group: rows of tiles in a band of the order of tiles.
        min_blocks: per multiprocessor.
        ping_pong: each consumer has a tile of its own: one multiplies while the other stores.
    """

    block_m: int = 128
    block_n: int = 256
    num_stages: int = 4
    num_consumers: int = 2
    cluster_m: int = 1
    cluster_n: int = 1
    split_k: int = 1
    terms: int = 1
    promote_tiles: int = 0
    swapped: bool = False
    raster_group: int = 8
    min_blocks: int = 1
    ping_pong: bool = False
    split_in_loop: bool = False

    @property
    def cluster(self) -> int:
        """Blocks per cluster."""
        return self.cluster_m * self.cluster_n * self.split_k

    @property
    def threads(self) -> int:
        """Threads per block: a producer warpgroup and the consumers."""
        return 128 * (self.num_consumers + 1)


@dataclass(frozen=True)
class Variant:
    """What is compiled in addition to the configuration: types, layouts and the epilogue.

    Attributes:
        a, b, out, extra: element types of the operands, the output, and of bias and residual.
        transpose_a, transpose_b: the operand is contiguous along M or N.
        tma_store: the output is stored through TMA.
        scalar_scales: `scales` are one number of each operand.
        activation: of `kw/epilogue/activation.cuh`.
        gated: B holds the gate and the other factor; the output is silu(gate) times that.
        block_scales: FP32 scales of 128 elements along K, of each row of A and each 128 rows of B.
        row_statistics: of `RowStatistics` in `gemm_params.cuh`, stored for each tile's columns of a row.
    """

    a: str
    b: str
    out: str
    extra: str
    transpose_a: bool = False
    transpose_b: bool = False
    tma_store: bool = True
    bias: bool = False
    residual: bool = False
    scales: bool = False
    scalar_scales: bool = False
    activation: str = "Identity"
    gated: bool = False
    block_scales: bool = False
    row_statistics: str = "kNone"

    def shared_bytes(self, config: GemmConfig) -> int:
        """Dynamic shared memory of a block."""
        store = STORE_BUFFERS * STORE_BUFFER_BYTES if self.tma_store else 0
        column_scales = self.scales and not self.scalar_scales
        factors = 4 * self.out_columns(config) * (self.bias + column_scales) if not config.swapped else 0
        scales = 4 * (config.block_m + 4) if self.block_scales else 0
        stages = config.num_stages * (self.stage_bytes(config) + scales)
        return stages + config.num_consumers * (store + factors + 8) + BARRIER_BYTES

    def oriented(self, config: GemmConfig) -> Variant:
        """A variant for operands in their order as it is compiled with a configuration, which may swap them."""
        one = self
        if config.swapped:
            one = replace(
                self,
                a=self.b,
                b=self.a,
                transpose_a=self.transpose_b,
                transpose_b=self.transpose_a,
                tma_store=self.tma_store and self.out != "f32",
            )
        return replace(one, tma_store=one.tma_store and config.split_k == 1)

    def stage_bytes(self, config: GemmConfig) -> int:
        """Shared memory of one buffer; a transposed B has whole panels of 128 bytes."""
        panel = SWIZZLE_BYTES // ELEMENT_BYTES[self.b]
        rows_b = -(-config.block_n // panel) * panel if self.transpose_b else config.block_n
        return config.terms * (config.block_m + rows_b) * SWIZZLE_BYTES

    @property
    def has_costly_epilogue(self) -> bool:
        """Whether the epilogue's code, unrolled over a tile, is larger than the instruction cache."""
        return self.activation in COSTLY_ACTIVATIONS or self.row_statistics != "kNone"

    def out_columns(self, config: GemmConfig) -> int:
        """Columns of the output in a tile."""
        return config.block_n // 2 if self.gated else config.block_n


ELEMENT_BYTES = {"bf16": 2, "f16": 2, "f32": 4, "tf32": 4, "e4m3": 1, "e5m2": 1}


def make_defines(config: GemmConfig, variant: Variant) -> dict[str, str]:
    """Macros of `gemm_sm90.cu`."""
    producer, consumer = REGISTERS[config.num_consumers] if config.min_blocks == 1 else (0, 0)
    values = {
        "BLOCK_M": config.block_m,
        "BLOCK_N": config.block_n,
        "NUM_STAGES": config.num_stages,
        "NUM_CONSUMERS": config.num_consumers,
        "CLUSTER_M": config.cluster_m,
        "CLUSTER_N": config.cluster_n,
        "SPLIT_K": config.split_k,
        "TERMS": config.terms,
        "PROMOTE_TILES": config.promote_tiles,
        "SWAPPED": int(config.swapped),
        "PING_PONG": int(config.ping_pong),
        "SPLIT_IN_LOOP": int(config.split_in_loop),
        "MIN_BLOCKS": config.min_blocks,
        "SHARED_BYTES": variant.shared_bytes(config),
        "PRODUCER_REGISTERS": producer,
        "CONSUMER_REGISTERS": consumer,
        "ELEMENT_BYTES": ELEMENT_BYTES[variant.a],
        "IN_A": variant.a,
        "IN_B": variant.b,
        "OUT": variant.out,
        "EXTRA": variant.extra,
        "ACTIVATION": variant.activation,
        "TRANSPOSE_A": int(variant.transpose_a),
        "TRANSPOSE_B": int(variant.transpose_b),
        "TMA_STORE": int(variant.tma_store),
        "HAS_BIAS": int(variant.bias),
        "HAS_RESIDUAL": int(variant.residual),
        "HAS_SCALES": int(variant.scales),
        "SCALAR_SCALES": int(variant.scalar_scales),
        "GATED": int(variant.gated),
        "BLOCK_SCALES": int(variant.block_scales),
        "ROW_STATISTICS": variant.row_statistics,
        "ROLLED_EPILOGUE": int(variant.has_costly_epilogue),
    }
    return {name: str(value) for name, value in values.items()}
