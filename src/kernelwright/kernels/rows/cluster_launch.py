"""Launch of CUDA C++ kernels that process a row with a cluster of thread blocks.

For rows that are too long for one Triton program, on sm_90 and later, where 16-byte vectors fit. Blocks exchange
partial results through distributed shared memory, in a fraction of the latency of L2, so a row passes through memory
once at the speed of a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelwright.kernels.launch_cache import record_launch
from kernelwright.kernels.launch_codegen import CURRENT_STREAM, RecordedLaunch
from kernelwright.kernels.rows import planning
from kernelwright.kernels.rows.launcher import INTERPRETED, RowView, device_guard, shared_bytes
from kernelwright.kernels.rows.layout import VECTOR_BYTES, WARP_SIZE
from kernelwright.toolchain.cuda.compiler import Cubin, compile_cubin, import_cuda_core
from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch

MIN_ROW_BYTES = 2**15
"""From this row length on two blocks are faster than one program."""
MAX_VECS_PER_THREAD = 8
"""16-byte vectors per thread: 64 elements of 16 bits, in FP32 half of its registers."""
MAX_ROWS_PER_CLUSTER, MIN_BLOCKS_PER_SM = 4, 32
"""Maximum rows per cluster, and the blocks that each SM must still have to run one after another."""
MIN_CLUSTER_WARPS, MAX_CLUSTER_WARPS, MAX_CLUSTER_SIZE = 4, 16, 8
MAX_THREADS_PER_SM = 768
"""Resident threads per SM, each with registers for its elements in FP32 and a quarter more."""
WARP_PARTIAL_BYTES = 16
"""Maximum size of a warp's partial result in one reduction round."""
DTYPE_CODES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}


@dataclass(frozen=True)
class ClusterLayout:
    """The split of a row over a cluster.

    Attributes:
        cluster_size: blocks per row.
        num_warps: per block.
    """

    cluster_size: int
    num_warps: int

    def bytes_per_block(self, row_bytes: int) -> int:
        """Bytes of a row that a block loads, rounded up to the same number of vectors for each thread."""
        load_bytes = WARP_SIZE * self.num_warps * VECTOR_BYTES
        return -(-row_bytes // (self.cluster_size * load_bytes)) * load_bytes


def choose_cluster_layout(N: int, itemsize: int, operands: int = 1) -> ClusterLayout | None:
    """The layout for rows of N elements; None for rows that are too short or too long for a cluster.

    Args:
        operands: tensors of that shape that are held together.
    """
    size, warp_bytes = N * itemsize, WARP_SIZE * VECTOR_BYTES * MAX_VECS_PER_THREAD // operands
    if size < MIN_ROW_BYTES or size % VECTOR_BYTES or size > MAX_CLUSTER_SIZE * MAX_CLUSTER_WARPS * warp_bytes:
        return None
    num_warps = MIN_CLUSTER_WARPS * operands
    while size > MAX_CLUSTER_SIZE * num_warps * warp_bytes:
        num_warps *= 2
    return ClusterLayout(-(-size // (num_warps * warp_bytes)), num_warps)


def choose_rows_per_cluster(M: int, layout: ClusterLayout, num_row_vectors: int, multiprocessors: int) -> int:
    """Rows per cluster: several if there are two row vectors (weight and bias), which are then loaded once.

    For a single one this does not pay, since no load is in flight while a row is stored.
    """
    max_rows = M * layout.cluster_size // (multiprocessors * MIN_BLOCKS_PER_SM)
    return max(1, min(MAX_ROWS_PER_CLUSTER, max_rows)) if num_row_vectors > 1 else 1


def supports_clusters(device: torch.device) -> bool:
    """Whether cluster kernels can be compiled here and run on `device`."""
    return planning.ACTIVE_PLAN.target.capability >= (9, 0) if planning.ACTIVE_PLAN else _supports_clusters(device)


@functools.cache
def _supports_clusters(device: torch.device) -> bool:
    if INTERPRETED or device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    try:
        from cuda.bindings import driver, nvrtc  # pyright: ignore[reportAttributeAccessIssue]

        import_cuda_core()
        return int(driver.cuDriverGetVersion()[1]) // 1000 >= nvrtc.nvrtcVersion()[1]
    except Exception:  # missing or incompatible CUDA packages fail in many ways; all mean no compilation
        return False


class ClusterKernel:
    """A CUDA C++ kernel over long rows that waits for the previous kernel itself (PDL).

    Args:
        module_file: a module in the folder of the source.
        name: the kernel's `extern "C"` name.
        source: the file name.
    """

    def __init__(self, module_file: str, name: str, source: str = "long_rows.cu") -> None:
        self._source, self._name = Path(module_file).with_name(source), name

    def choose_layout(
        self,
        *rows: RowView,
        row_vectors: tuple[Tensor | None, ...] = (),
        operands: int = 1,
        smem_rows: int | None = None,
    ) -> ClusterLayout | None:
        """The cluster layout for these tensors; None if rows are too short or too long, dtypes differ, or rows are
        not 16-byte aligned.

        Args:
            row_vectors: weight and bias, shared by all rows.
            operands: tensors that are held together.
            smem_rows: rows of which a block keeps its part in shared memory; default is the number of row vectors.
        """
        x = rows[0].tensor
        layout = choose_cluster_layout(x.shape[-1], x.itemsize, operands)
        if layout is None or not supports_clusters(x.device):
            return None
        elements = VECTOR_BYTES // x.itemsize
        strides = (stride for one in rows for stride in one.stride_args[len(one.stride_args) // 2 :])
        tensors = [*(one.tensor for one in rows), *(one for one in row_vectors if one is not None)]
        fits = all(one.dtype == x.dtype and one.data_ptr() % VECTOR_BYTES == 0 for one in tensors)
        smem_rows = sum(one is not None for one in row_vectors) if smem_rows is None else smem_rows
        reduction_bytes = 2 * (layout.cluster_size * layout.num_warps * WARP_PARTIAL_BYTES + 8)
        fits = fits and smem_rows * layout.bytes_per_block(row_bytes(x)) + reduction_bytes <= shared_bytes(x.device)
        return layout if fits and all(stride % elements == 0 for stride in strides) else None

    def __call__(
        self,
        layout: ClusterLayout,
        x: Tensor,
        arguments: tuple[Any, ...],
        *,
        num_clusters: int | None = None,
        smem_rows: int = 0,
        **constants: int,
    ) -> None:
        """Launch the kernel over the rows of x.

        Args:
            arguments: None is a null pointer.
            num_clusters: default is one per row.
            smem_rows: rows of which a block keeps its part in shared memory.
            constants: macros of the source in addition to those of the layout.
        """
        if planning.ACTIVE_PLAN:
            macros = build_macros(layout, x.shape[-1], x.dtype, constants)
            planning.ACTIVE_PLAN.add_cuda(self._source, self._name, macros, Path(__file__).parent)
            record_launch(lambda: None)
            return
        kernel_args = tuple(0 if one is None else one for one in arguments)
        grid = (x.numel() // x.shape[-1] if num_clusters is None else num_clusters) * layout.cluster_size
        shape = (
            grid,
            WARP_SIZE * layout.num_warps,
            smem_rows * layout.bytes_per_block(row_bytes(x)),
            layout.cluster_size,
        )
        with device_guard(x.device):
            kernel = self._kernel_for(layout, x, constants)
            kernel(*shape[:2], kernel_args, shape[2], cluster=layout.cluster_size, use_pdl=True)
            record_launch(
                lambda: RecordedLaunch(
                    kernel.make_launcher(*shape, use_pdl=True), (CURRENT_STREAM,), kernel.convert_scalars(kernel_args)
                )
            )

    def max_active_clusters(self, layout: ClusterLayout, x: Tensor, *, smem_rows: int, **constants: int) -> int:
        """Maximum number of clusters that are resident on the device of x."""
        if planning.ACTIVE_PLAN:
            return max(1, planning.ACTIVE_PLAN.target.multiprocessors // layout.cluster_size)
        with device_guard(x.device):
            kernel = self._kernel_for(layout, x, constants)
            return _max_active_clusters(
                kernel,
                WARP_SIZE * layout.num_warps,
                smem_rows * layout.bytes_per_block(row_bytes(x)),
                layout.cluster_size,
            )

    def _kernel_for(self, layout: ClusterLayout, x: Tensor, constants: Mapping[str, int]) -> CudaKernel:
        macros = build_macros(layout, x.shape[-1], x.dtype, constants)
        return _load_kernel(self._source, self._name, x.device.index, tuple(sorted(macros.items())))

    def compile(self, arch: str, layout: ClusterLayout, N: int, dtype: torch.dtype, **constants: int) -> Cubin:
        """Compile for an architecture."""
        return _compile(self._source, arch, build_macros(layout, N, dtype, constants))


def row_bytes(x: Tensor) -> int:
    """Bytes of a row."""
    return x.shape[-1] * x.itemsize


def build_macros(layout: ClusterLayout, N: int, dtype: torch.dtype, constants: Mapping[str, int]) -> dict[str, str]:
    """Macros of shared_row.cuh and of the kernel's own source."""
    macros = {
        "COLUMNS": N,
        "CLUSTER_SIZE": layout.cluster_size,
        "NUM_WARPS": layout.num_warps,
        "DTYPE": DTYPE_CODES[dtype],
    }
    macros |= {"MAX_THREADS_PER_SM": MAX_THREADS_PER_SM, **constants}
    return {name: str(int(value)) for name, value in macros.items()}


@functools.lru_cache(maxsize=1024)
def _load_kernel(source: Path, name: str, device: int, macros: tuple[tuple[str, str], ...]) -> CudaKernel:
    """Load a kernel for one device: the maximum shared memory is a property of the device."""
    return CudaKernel(_compile(source, current_arch(), dict(macros)), name)


@functools.lru_cache(maxsize=1024)
def _max_active_clusters(kernel: CudaKernel, threads: int, smem_bytes: int, cluster_size: int) -> int:
    return kernel.max_active_clusters(threads, smem_bytes, cluster_size)


def _compile(source: Path, arch: str, macros: Mapping[str, str]) -> Cubin:
    folders = [Path(__file__).parent]
    return compile_cubin(source.read_text("utf-8"), arch, defines=macros, include_dirs=folders, name=str(source))
