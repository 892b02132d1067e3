"""Compiles the GEMM kernel for a configuration and launches it on prepared operands."""

from __future__ import annotations

import functools
import itertools
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from kernelwright.core.errors import InternalError
from kernelwright.kernels.matmul.configs import ELEMENT_BYTES, SWIZZLE_BYTES, GemmConfig, Variant, make_defines
from kernelwright.kernels.matmul.operands import padded_pitch
from kernelwright.toolchain.cuda.compiler import Cubin, compile_cubin
from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch
from kernelwright.toolchain.cuda.struct_launch import (
    TENSOR_MAP_ALIGNMENT,
    TENSOR_MAP_BYTES,
    StructLaunch,
    StructParameter,
)

if TYPE_CHECKING:
    from kernelwright.toolchain.emulator import EmulatedKernel, EmulatedStructLaunch, EmulatedStructParameter

SOURCE = Path(__file__).with_name("gemm_sm90.cu")
MAP_TYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "tf32": "float32",
    "e4m3": "uint8",
    "e5m2": "uint8",
}
_PARTS = tuple(map(struct.Struct, ("<6q", "<6q5i", "<2f4x", "<6q", "<8q")))
"""`GemmParams` after its tensor maps: addresses, sizes, factors, strides of block scales, FP32 operands."""
_ADDRESSES, _SIZES, _FACTORS, _SCALE_STRIDES, _FP32_OPERANDS = _PARTS
LOST_THREADS = 256
PRODUCT, RECOMPUTE = "gemm_sm90", "recompute_lost"


EMULATED_MULTIPROCESSORS = 16


@functools.cache
def count_multiprocessors(device: torch.device) -> int:
    """Multiprocessors of a CUDA device, or of the emulator."""
    is_emulated = device.type == "cpu"
    return EMULATED_MULTIPROCESSORS if is_emulated else torch.cuda.get_device_properties(device).multi_processor_count


def current_stream(device: torch.device) -> int:
    """Handle of the current stream; 0 in the emulator."""
    return 0 if device.type == "cpu" else torch._C._cuda_getCurrentRawStream(device.index)


def make_parameter(num_bytes: int, device: torch.device) -> StructParameter | EmulatedStructParameter:
    """Memory of the struct that a kernel takes."""
    if device.type == "cpu":
        from kernelwright.toolchain.emulator import EmulatedStructParameter

        return EmulatedStructParameter(num_bytes)
    return StructParameter(num_bytes)


def make_launch(
    kernel: CudaKernel | EmulatedKernel,
    parameter: StructParameter | EmulatedStructParameter,
    *,
    grid: int,
    threads: int,
    shared_bytes: int = 0,
    cluster: int = 1,
) -> StructLaunch | EmulatedStructLaunch:
    """A launch that may begin while the previous kernel ends; sizes as for `StructLaunch`."""
    sizes = {"grid": grid, "threads": threads, "shared_bytes": shared_bytes, "cluster": cluster}
    if isinstance(kernel, CudaKernel) and isinstance(parameter, StructParameter):
        return StructLaunch(kernel, parameter, **sizes, use_pdl=True)
    from kernelwright.toolchain.emulator import EmulatedKernel, EmulatedStructLaunch, EmulatedStructParameter

    if isinstance(kernel, EmulatedKernel) and isinstance(parameter, EmulatedStructParameter):
        return EmulatedStructLaunch(kernel, parameter, **sizes)
    raise InternalError(f"a {type(kernel).__name__} does not take a {type(parameter).__name__}")


@functools.cache
def compile_product(config: GemmConfig, variant: Variant, arch: str) -> Cubin:
    """Machine code of a configuration; needs no GPU."""
    defines, source = make_defines(config, variant), SOURCE.read_text("utf-8")
    return compile_cubin(source, arch, defines=defines, include_dirs=[SOURCE.parent], name=str(SOURCE))


@functools.cache
def load_kernel(
    config: GemmConfig, variant: Variant, device: torch.device, name: str = PRODUCT
) -> CudaKernel | EmulatedKernel:
    """A kernel of a configuration on a device."""
    if device.type == "cpu":
        from kernelwright.toolchain.emulator import EmulatedKernel

        return EmulatedKernel(SOURCE.read_text("utf-8"), name, path=str(SOURCE), defines=make_defines(config, variant))
    kernel = CudaKernel(compile_product(config, variant, current_arch()), name)
    if name == PRODUCT:
        kernel.allow_shared_memory(variant.shared_bytes(config))
    return kernel


class GemmLaunch:
    """A launch for one shape and one set of strides; addresses are set in each call.

    Args:
        a, b: one matrix, or the two terms, as (batch, rows, K) views; rows are M and N.
        out: (batch, M, N) view of the product's own orientation.
        block_scales: of a and of b, (batch or 1, rows or their blocks, blocks of K).
    """

    def __init__(
        self,
        config: GemmConfig,
        variant: Variant,
        a: tuple[Tensor, ...],
        b: tuple[Tensor, ...],
        out: Tensor,
        residual: Tensor | None = None,
        block_scales: tuple[Tensor, ...] = (),
    ) -> None:
        device = out.device
        batch, m, n = out.shape
        self.config, self.variant = config, variant
        kernel = load_kernel(config, variant, device)
        sms = count_multiprocessors(device)
        out_n = variant.out_columns(config)
        tiles = -(-m // (config.block_m * config.cluster_m)) * -(-n // (out_n * config.cluster_n)) * batch
        clusters = tiles if config.split_k > 1 else min(tiles, sms * config.min_blocks // config.cluster)
        self._maps = len(a) + len(b)
        first = (self._maps + 1) * TENSOR_MAP_BYTES
        *self._offsets, size = itertools.accumulate((one.size for one in _PARTS), initial=first)
        self._parameter = make_parameter(-(-size // TENSOR_MAP_ALIGNMENT) * TENSOR_MAP_ALIGNMENT, device)
        self._launch = make_launch(
            kernel,
            self._parameter,
            grid=clusters * config.cluster,
            threads=config.threads,
            shared_bytes=variant.shared_bytes(config),
            cluster=config.cluster,
        )
        self._recompute = None
        if config.terms == 2:
            recompute = load_kernel(config, variant, device, RECOMPUTE)
            self._recompute = make_launch(recompute, self._parameter, grid=sms, threads=LOST_THREADS)
        sides = (
            (a, "f32" if config.split_in_loop else variant.a, variant.transpose_a, config.block_m, config.cluster_n),
            (b, variant.b, variant.transpose_b, out_n, config.cluster_m),
        )
        offset = 0
        for terms, kind, transposed, rows, shared in sides:
            for one in terms:
                self._encode_operand(offset, one, kind, transposed, rows, shared)
                offset += TENSOR_MAP_BYTES
        if variant.tma_store:
            self._encode_output(self._maps * TENSOR_MAP_BYTES, out)
        _SIZES.pack_into(
            self._parameter.content, self._offsets[1],
            *(out.stride(i) for i in (1, 2, 0)),
            *((residual.stride(i) for i in (1, 2, 0)) if residual is not None else (0, 0, 0)),
            m, n, a[0].shape[2], batch, config.raster_group,
        )  # fmt: skip
        scale_strides = [one.stride(i) * (i > 0 or one.shape[0] > 1) for one in block_scales for i in (1, 2, 0)]
        scale_strides += [0] * (6 - len(scale_strides))
        _SCALE_STRIDES.pack_into(self._parameter.content, self._offsets[3], *scale_strides)
        self._content, self._has_out_map = self._parameter.content, variant.tma_store
        self._addresses, self._out = tuple(one.data_ptr() for one in (*a, *b)), out.data_ptr()
        self._factors: tuple[float, float] | None = None

    def _encode_operand(self, offset: int, one: Tensor, kind: str, transposed: bool, rows: int, shared: int) -> None:
        """Encode the map of an operand; `shared` blocks load parts of a tile of `rows`."""
        size = ELEMENT_BYTES[kind]
        depth = SWIZZLE_BYTES // size
        batch, count, k = one.shape
        sizes = (count, k, batch) if transposed else (k, count, batch)
        box = (depth, (depth if transposed else rows) // shared, 1)
        self._encode(offset, one, kind, one.stride(2 if transposed else 1), sizes, box)

    def _encode_output(self, offset: int, out: Tensor) -> None:
        batch, m, n = out.shape
        columns = SWIZZLE_BYTES // out.element_size()
        if self.config.swapped:
            sizes, box, pitch = (m, n, batch), (columns, min(64, self.config.block_n), 1), out.stride(2)
        else:
            sizes, box, pitch = (n, m, batch), (columns, 64, 1), out.stride(1)
        self._encode(offset, out, self.variant.out, pitch, sizes, box)

    def _encode(
        self, offset: int, one: Tensor, kind: str, pitch: int, sizes: tuple[int, ...], box: tuple[int, ...]
    ) -> None:
        """Encode a map; the strides of dimensions of size 1 are replaced by ones that TMA permits."""
        size = one.element_size()
        pitch = pitch if sizes[1] > 1 else padded_pitch(sizes[0], size)
        outer = one.stride(0) if sizes[2] > 1 else pitch * sizes[1]
        self._parameter.encode_tensor_map(
            offset, one.data_ptr(), MAP_TYPES[kind], sizes, (pitch * size, outer * size), box
        )

    def __call__(
        self,
        stream: int,
        addresses: tuple[int, ...],
        out: int,
        extra: tuple[int, ...] = (0, 0, 0, 0, 0),
        alpha: float = 1.0,
        beta: float = 1.0,
        fp32_operands: tuple[int, ...] = (),
    ) -> None:
        """Launch on a stream.

        Args:
            addresses: of the operands' terms, a before b.
            extra: addresses of bias, residual, row scales, column scales and row statistics; 0 for none.
            fp32_operands: of operands in two terms, address and strides (row, K, batch) before they were split.
        """
        if addresses != self._addresses:
            self._addresses = ()  # should the driver refuse one
            for at, address in enumerate(addresses):
                self._parameter.replace_address(at * TENSOR_MAP_BYTES, address)
            self._addresses = addresses
        if out != self._out and self._has_out_map:
            self._parameter.replace_address(self._maps * TENSOR_MAP_BYTES, out)
            self._out = out
        _ADDRESSES.pack_into(self._content, self._offsets[0], out, *extra)
        if self._factors != (alpha, beta):
            _FACTORS.pack_into(self._content, self._offsets[2], alpha, beta)
            self._factors = alpha, beta
        if self._recompute:
            _FP32_OPERANDS.pack_into(self._content, self._offsets[4], *fp32_operands)
        self._launch(stream)
        if self._recompute:
            self._recompute(stream)
