"""Compiles the GEMM kernel for a configuration and launches it on prepared operands."""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernelwright.kernels.gemm.configs import ELEMENT_BYTES, SWIZZLE_BYTES, GemmConfig, Variant, make_defines
from kernelwright.toolchain.cuda.compiler import compile_cubin
from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch
from kernelwright.toolchain.cuda.struct_launch import TENSOR_MAP_BYTES, StructLaunch

SOURCE = Path(__file__).with_name("gemm_sm90.cu")
MAP_TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "tf32": "float32",
    "e4m3": "uint8",
    "e5m2": "uint8",
}
_FIELDS = struct.Struct("<5q6q5i2f")


@dataclass(frozen=True)
class Shape:
    """Sizes of a product: (batch, M, K) times (batch, K, N)."""

    batch: int
    m: int
    n: int
    k: int


@functools.cache
def compile_kernel(config: GemmConfig, variant: Variant, device: int) -> CudaKernel:
    """The kernel of a configuration on a device."""
    defines = make_defines(config, variant)
    source = SOURCE.read_text("utf-8")
    cubin = compile_cubin(source, current_arch(), defines=defines, include_dirs=[SOURCE.parent], name=str(SOURCE))
    kernel = CudaKernel(cubin, "gemm_sm90")
    kernel.allow_shared_memory(config.shared_bytes(variant.tma_store))
    return kernel


class GemmLaunch:
    """A launch for one shape and one set of strides; addresses are set in each call.

    Args:
        a, b: one matrix, or the two terms, as (batch, rows, K) views; rows are M and N.
        out: (batch, M, N) view of the product's own orientation.
    """

    def __init__(
        self,
        config: GemmConfig,
        variant: Variant,
        a: tuple[Tensor, ...],
        b: tuple[Tensor, ...],
        out: Tensor,
        residual: Tensor | None = None,
    ) -> None:
        device = out.device.index
        batch, m, n = out.shape
        self.config, self.variant = config, variant
        kernel = compile_kernel(config, variant, device)
        sms = torch.cuda.get_device_properties(device).multi_processor_count
        out_n = config.block_n // 2 if variant.gated else config.block_n
        tiles = -(-m // (config.block_m * config.cluster_m)) * -(-n // (out_n * config.cluster_n)) * batch
        clusters = tiles if config.split_k > 1 else min(tiles, sms * config.min_blocks // config.cluster)
        self._maps = len(a) + len(b)
        self._fields_offset = (self._maps + 1) * TENSOR_MAP_BYTES
        size = -(-(self._fields_offset + _FIELDS.size) // 64) * 64
        self.launch = StructLaunch(
            kernel.handle,
            size,
            grid=clusters * config.cluster,
            threads=config.threads,
            shared_bytes=config.shared_bytes(variant.tma_store),
            cluster=config.cluster,
            use_pdl=config.pdl > 0,
        )
        sides = (
            (a, variant.a, variant.transpose_a, config.block_m, config.cluster_n),
            (b, variant.b, variant.transpose_b, out_n, config.cluster_m),
        )
        offset = 0
        for terms, kind, transposed, rows, shared in sides:
            for one in terms:
                self._encode_operand(offset, one, kind, transposed, rows, shared)
                offset += TENSOR_MAP_BYTES
        if variant.tma_store:
            self._encode_output(self._maps * TENSOR_MAP_BYTES, out)
        self._tail = (
            *(out.stride(i) for i in (1, 2, 0)),
            *((residual.stride(i) for i in (1, 2, 0)) if residual is not None else (0, 0, 0)),
            m, n, a[0].shape[2], batch, config.raster_group,
        )  # fmt: skip

    def _encode_operand(self, offset: int, one: Tensor, kind: str, transposed: bool, rows: int, shared: int) -> None:
        """Encode the map of an operand; `shared` blocks load parts of a tile of `rows`."""
        size = ELEMENT_BYTES[kind]
        depth = SWIZZLE_BYTES // size
        batch, count, k = one.shape
        sizes = (count, k, batch) if transposed else (k, count, batch)
        box = (depth, (depth if transposed else rows) // shared, 1)
        pitch = one.stride(2 if transposed else 1)
        strides = (pitch * size, (one.stride(0) if batch > 1 else pitch * sizes[1]) * size)
        self.launch.encode_tensor_map(offset, one.data_ptr(), MAP_TYPES[kind], sizes, strides, box)

    def _encode_output(self, offset: int, out: Tensor) -> None:
        batch, m, n = out.shape
        size, columns = out.element_size(), SWIZZLE_BYTES // out.element_size()
        if self.config.swapped:
            sizes, box, pitch = (m, n, batch), (columns, min(64, self.config.block_n), 1), out.stride(2)
        else:
            sizes, box, pitch = (n, m, batch), (columns, 64, 1), out.stride(1)
        strides = (pitch * size, (out.stride(0) if batch > 1 else pitch * sizes[1]) * size)
        self.launch.encode_tensor_map(offset, out.data_ptr(), MAP_TYPES[self.variant.out], sizes, strides, box)

    def __call__(
        self,
        stream: int,
        addresses: tuple[int, ...],
        out: int,
        bias: int = 0,
        residual: int = 0,
        row_scale: int = 0,
        column_scale: int = 0,
        alpha: float = 1.0,
        beta: float = 1.0,
    ) -> None:
        """Launch on a stream.

        Args:
            addresses: of the operands' terms, a before b.
        """
        launch = self.launch
        for at, address in enumerate(addresses):
            launch.replace_address(at * TENSOR_MAP_BYTES, address)
        if self.variant.tma_store:
            launch.replace_address(self._maps * TENSOR_MAP_BYTES, out)
        _FIELDS.pack_into(
            launch.parameters,
            self._fields_offset,
            out,
            bias,
            residual,
            row_scale,
            column_scale,
            *self._tail,
            alpha,
            beta,
        )
        launch(stream)
