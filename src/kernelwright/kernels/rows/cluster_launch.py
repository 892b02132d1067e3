"""Rows that a cluster of blocks shares, in CUDA C++: what is long for one program of Triton's, where the machine has
clusters and vectors of 16 bytes fit.

Parts of a row hear of each other through shared memory there, in a fraction of the time that the L2 takes, so that a
row passes through memory once at the speed of a copy.
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
"""Of a row: from here on two blocks are faster than one program."""
MAX_VECS_PER_THREAD = 8
"""How often a thread loads what it does at once: 64 elements of 16 bits, in FP32 half of its registers."""
MAX_ROWS_PER_CLUSTER, MIN_BLOCKS_PER_SM = 4, 32
"""Of a cluster that has much in common for its rows, where each multiprocessor has so many blocks one after another."""
MIN_CLUSTER_WARPS, MAX_CLUSTER_WARPS, MAX_CLUSTER_SIZE = 4, 16, 8
MAX_THREADS_PER_SM = 768
"""Of a multiprocessor, each with registers for its elements in FP32 and a quarter more."""
WARP_PARTIAL_BYTES = 16
"""What a warp tells the others of its row in a turn, at most."""
DTYPE_CODES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}


@dataclass(frozen=True)
class ClusterLayout:
    """
    Attributes:
        cluster_size: blocks that share a row.
        num_warps: of each.
    """

    cluster_size: int
    num_warps: int

    def bytes_per_block(self, row_bytes: int) -> int:
        """What a block's threads load of a row, as many vectors each."""
        at_once = WARP_SIZE * self.num_warps * VECTOR_BYTES
        return -(-row_bytes // (self.cluster_size * at_once)) * at_once


def choose_cluster_layout(N: int, itemsize: int, operands: int = 1) -> ClusterLayout | None:
    """The layout for rows of N elements; None for rows that are shorter, or longer than a cluster holds.

    Args:
        operands: tensors of that shape that are held at once.
    """
    size, held = N * itemsize, WARP_SIZE * VECTOR_BYTES * MAX_VECS_PER_THREAD // operands
    if size < MIN_ROW_BYTES or size % VECTOR_BYTES or size > MAX_CLUSTER_SIZE * MAX_CLUSTER_WARPS * held:
        return None
    warps = MIN_CLUSTER_WARPS * operands
    while size > MAX_CLUSTER_SIZE * warps * held:
        warps *= 2
    return ClusterLayout(-(-size // (warps * held)), warps)


def choose_rows_per_cluster(M: int, layout: ClusterLayout, num_row_vectors: int, multiprocessors: int) -> int:
    """Rows that a cluster takes one after another: several where they have two tensors in common, which then come once.
    For one it is not worth that nothing is loaded while a row is written."""
    enough = M * layout.cluster_size // (multiprocessors * MIN_BLOCKS_PER_SM)
    return max(1, min(MAX_ROWS_PER_CLUSTER, enough)) if num_row_vectors > 1 else 1


def supports_clusters(device: torch.device) -> bool:
    """Whether CUDA C++ for clusters can be compiled here and runs there."""
    return planning.ACTIVE_PLAN.target.capability >= (9, 0) if planning.ACTIVE_PLAN else _supports_clusters(device)


@functools.cache
def _supports_clusters(device: torch.device) -> bool:
    if INTERPRETED or device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    try:
        from cuda.bindings import driver, nvrtc  # pyright: ignore[reportAttributeAccessIssue]

        import_cuda_core()
        return int(driver.cuDriverGetVersion()[1]) // 1000 >= nvrtc.nvrtcVersion()[1]
    except Exception:  # of whatever kind: what is not there, or does not go together, cannot compile here
        return False


class ClusterKernel:
    """A kernel of CUDA C++ over long rows, which waits itself for what was launched before.

    Args:
        module_file: the module that the source lies beside.
        name: the kernel's `extern "C"` name.
        source: the file.
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
        """How tensors' rows are shared; None where they cannot be: too short or too long, of different dtypes, or not
        at multiples of 16 bytes.

        Args:
            row_vectors: what all rows have in common.
            operands: tensors that are held at once.
            smem_rows: of how many rows a block keeps its part in shared memory; of those that all have in common, if
                left out.
        """
        x = rows[0].tensor
        found = choose_cluster_layout(x.shape[-1], x.itemsize, operands)
        if found is None or not supports_clusters(x.device):
            return None
        lanes = VECTOR_BYTES // x.itemsize
        strides = (stride for one in rows for stride in one.stride_args[len(one.stride_args) // 2 :])
        tensors = [*(one.tensor for one in rows), *(one for one in row_vectors if one is not None)]
        fits = all(one.dtype == x.dtype and one.data_ptr() % VECTOR_BYTES == 0 for one in tensors)
        smem_rows = sum(one is not None for one in row_vectors) if smem_rows is None else smem_rows
        board = 2 * (found.cluster_size * found.num_warps * WARP_PARTIAL_BYTES + 8)
        fits = fits and smem_rows * found.bytes_per_block(row_bytes(x)) + board <= shared_bytes(x.device)
        return found if fits and all(stride % lanes == 0 for stride in strides) else None

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
        """One launch over the rows of x.

        Args:
            arguments: None is a null pointer.
            num_clusters: as many as rows, unless each takes several.
            smem_rows: of how many rows a block keeps its part in shared memory.
            constants: macros of the source beside those of the layout.
        """
        if planning.ACTIVE_PLAN:
            macros = build_macros(layout, x.shape[-1], x.dtype, constants)
            planning.ACTIVE_PLAN.add_cuda(self._source, self._name, macros, Path(__file__).parent)
            record_launch(lambda: None)
            return
        given = tuple(0 if one is None else one for one in arguments)
        grid = (x.numel() // x.shape[-1] if num_clusters is None else num_clusters) * layout.cluster_size
        shape = (
            grid,
            WARP_SIZE * layout.num_warps,
            smem_rows * layout.bytes_per_block(row_bytes(x)),
            layout.cluster_size,
        )
        with device_guard(x.device):
            kernel = self._kernel_for(layout, x, constants)
            kernel(*shape[:2], given, shape[2], cluster=layout.cluster_size, use_pdl=True)
            record_launch(
                lambda: RecordedLaunch(
                    kernel.make_launcher(*shape, use_pdl=True), (CURRENT_STREAM,), kernel.convert_scalars(given)
                )
            )

    def max_active_clusters(self, layout: ClusterLayout, x: Tensor, *, smem_rows: int, **constants: int) -> int:
        """How many of such clusters the device of x runs at once."""
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
        """Its machine code."""
        return _compile(self._source, arch, build_macros(layout, N, dtype, constants))


def row_bytes(x: Tensor) -> int:
    return x.shape[-1] * x.itemsize


def build_macros(layout: ClusterLayout, N: int, dtype: torch.dtype, constants: Mapping[str, int]) -> dict[str, str]:
    """What shared_row.cuh and a kernel's own source are compiled with."""
    known = {
        "COLUMNS": N,
        "CLUSTER_SIZE": layout.cluster_size,
        "NUM_WARPS": layout.num_warps,
        "DTYPE": DTYPE_CODES[dtype],
    }
    known |= {"MAX_THREADS_PER_SM": MAX_THREADS_PER_SM, **constants}
    return {name: str(int(value)) for name, value in known.items()}


@functools.lru_cache(maxsize=1024)
def _load_kernel(source: Path, name: str, device: int, macros: tuple[tuple[str, str], ...]) -> CudaKernel:
    """One for each device: how much shared memory a kernel may have is a device's own."""
    return CudaKernel(_compile(source, current_arch(), dict(macros)), name)


@functools.lru_cache(maxsize=1024)
def _max_active_clusters(kernel: CudaKernel, threads: int, shared: int, parts: int) -> int:
    return kernel.max_active_clusters(threads, shared, parts)


def _compile(source: Path, arch: str, macros: Mapping[str, str]) -> Cubin:
    folders = [Path(__file__).parent]
    return compile_cubin(source.read_text("utf-8"), arch, defines=macros, include_dirs=folders, name=str(source))
