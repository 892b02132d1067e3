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

from kernelwright.kernels.launch_cache import watched
from kernelwright.kernels.launch_codegen import STREAM, Launch
from kernelwright.kernels.rows import planning
from kernelwright.kernels.rows.launching import INTERPRETED, Rows, on, shared_bytes
from kernelwright.kernels.rows.layout import VECTOR_BYTES, WARP
from kernelwright.toolchain.cuda.compiling import Cubin, compile_cubin, cuda_core
from kernelwright.toolchain.cuda.launching import CudaKernel, arch_here

SHORTEST_BYTES = 2**15
"""Of a row: from here on two blocks are faster than one program."""
VECTORS = 8
"""How often a thread loads what it does at once: 64 elements of 16 bits, in FP32 half of its registers."""
MOST_ROWS, ENOUGH_BLOCKS = 4, 32
"""Of a cluster that has much in common for its rows, where each multiprocessor has so many blocks one after another."""
FEWEST_CLUSTER_WARPS, MOST_CLUSTER_WARPS, MOST_PARTS = 4, 16, 8
THREADS_AT_ONCE = 768
"""Of a multiprocessor, each with registers for its elements in FP32 and a quarter more."""
FOUND_BYTES = 16
"""What a warp tells the others of its row in a turn, at most."""
ELEMENTS = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}


@dataclass(frozen=True)
class ClusterLayout:
    """
    Attributes:
        parts: blocks that share a row.
        warps: of each.
    """

    parts: int
    warps: int

    def part_bytes(self, row_bytes: int) -> int:
        """What a block's threads load of a row, as many vectors each."""
        at_once = WARP * self.warps * VECTOR_BYTES
        return -(-row_bytes // (self.parts * at_once)) * at_once


def cluster_layout(N: int, itemsize: int, operands: int = 1) -> ClusterLayout | None:
    """The layout for rows of N elements; None for rows that are shorter, or longer than a cluster holds.

    Args:
        operands: tensors of that shape that are held at once.
    """
    size, held = N * itemsize, WARP * VECTOR_BYTES * VECTORS // operands
    if size < SHORTEST_BYTES or size % VECTOR_BYTES or size > MOST_PARTS * MOST_CLUSTER_WARPS * held:
        return None
    warps = FEWEST_CLUSTER_WARPS * operands
    while size > MOST_PARTS * warps * held:
        warps *= 2
    return ClusterLayout(-(-size // (warps * held)), warps)


def rows_each(M: int, layout: ClusterLayout, along: int, multiprocessors: int) -> int:
    """Rows that a cluster takes one after another: several where they have two tensors in common, which then come once.
    For one it is not worth that nothing is loaded while a row is written."""
    enough = M * layout.parts // (multiprocessors * ENOUGH_BLOCKS)
    return max(1, min(MOST_ROWS, enough)) if along > 1 else 1


def has_clusters(device: torch.device) -> bool:
    """Whether CUDA C++ for clusters can be compiled here and runs there."""
    return planning.ACTIVE.target.capability >= (9, 0) if planning.ACTIVE else _has_clusters(device)


@functools.cache
def _has_clusters(device: torch.device) -> bool:
    if INTERPRETED or device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    try:
        from cuda.bindings import driver, nvrtc  # pyright: ignore[reportAttributeAccessIssue]

        cuda_core()
        return int(driver.cuDriverGetVersion()[1]) // 1000 >= nvrtc.nvrtcVersion()[1]
    except Exception:  # of whatever kind: what is not there, or does not go together, cannot compile here
        return False


class ClusterKernel:
    """A kernel of CUDA C++ over long rows, which waits itself for what was launched before.

    Args:
        beside: the module that the source lies beside.
        name: the kernel's `extern "C"` name.
        source: the file.
    """

    def __init__(self, beside: str, name: str, source: str = "long_rows.cu") -> None:
        self._source, self._name = Path(beside).with_name(source), name

    def layout(
        self, *rows: Rows, along: tuple[Tensor | None, ...] = (), operands: int = 1, kept: int | None = None
    ) -> ClusterLayout | None:
        """How tensors' rows are shared; None where they cannot be: too short or too long, of different dtypes, or not
        at multiples of 16 bytes.

        Args:
            along: what all rows have in common.
            operands: tensors that are held at once.
            kept: of how many rows a block keeps its part in shared memory; of those that all have in common, if left
                out.
        """
        x = rows[0].tensor
        found = cluster_layout(x.shape[-1], x.itemsize, operands)
        if found is None or not has_clusters(x.device):
            return None
        lanes = VECTOR_BYTES // x.itemsize
        strides = (stride for one in rows for stride in one.place[len(one.place) // 2 :])
        tensors = [*(one.tensor for one in rows), *(one for one in along if one is not None)]
        fits = all(one.dtype == x.dtype and one.data_ptr() % VECTOR_BYTES == 0 for one in tensors)
        kept = sum(one is not None for one in along) if kept is None else kept
        board = 2 * (found.parts * found.warps * FOUND_BYTES + 8)
        fits = fits and kept * found.part_bytes(row_bytes(x)) + board <= shared_bytes(x.device)
        return found if fits and all(stride % lanes == 0 for stride in strides) else None

    def __call__(
        self,
        layout: ClusterLayout,
        x: Tensor,
        arguments: tuple[Any, ...],
        *,
        clusters: int | None = None,
        kept: int = 0,
        **constants: int,
    ) -> None:
        """One launch over the rows of x.

        Args:
            arguments: None is a null pointer.
            clusters: as many as rows, unless each takes several.
            kept: of how many rows a block keeps its part in shared memory.
            constants: macros of the source beside those of the layout.
        """
        if planning.ACTIVE:
            macros = macros_of(layout, x.shape[-1], x.dtype, constants)
            planning.ACTIVE.add_cuda(self._source, self._name, macros, Path(__file__).parent)
            watched(lambda: None)
            return
        given = tuple(0 if one is None else one for one in arguments)
        grid = (x.numel() // x.shape[-1] if clusters is None else clusters) * layout.parts
        shape = grid, WARP * layout.warps, kept * layout.part_bytes(row_bytes(x)), layout.parts
        with on(x.device):
            kernel = self._here(layout, x, constants)
            kernel(*shape[:2], given, shape[2], cluster=layout.parts, early=True)
            watched(lambda: Launch(kernel.launcher(*shape, early=True), (STREAM,), kernel.typed(given)))

    def clusters_at_once(self, layout: ClusterLayout, x: Tensor, *, kept: int, **constants: int) -> int:
        """How many of such clusters the device of x runs at once."""
        if planning.ACTIVE:
            return max(1, planning.ACTIVE.target.multiprocessors // layout.parts)
        with on(x.device):
            kernel = self._here(layout, x, constants)
            return _at_once(kernel, WARP * layout.warps, kept * layout.part_bytes(row_bytes(x)), layout.parts)

    def _here(self, layout: ClusterLayout, x: Tensor, constants: Mapping[str, int]) -> CudaKernel:
        macros = macros_of(layout, x.shape[-1], x.dtype, constants)
        return _loaded(self._source, self._name, x.device.index, tuple(sorted(macros.items())))

    def compiled(self, arch: str, layout: ClusterLayout, N: int, dtype: torch.dtype, **constants: int) -> Cubin:
        """Its machine code."""
        return _compiled(self._source, arch, macros_of(layout, N, dtype, constants))


def row_bytes(x: Tensor) -> int:
    return x.shape[-1] * x.itemsize


def macros_of(layout: ClusterLayout, N: int, dtype: torch.dtype, constants: Mapping[str, int]) -> dict[str, str]:
    """What shared_row.cuh and a kernel's own source are compiled with."""
    known = {"COLUMNS": N, "PARTS": layout.parts, "WARPS": layout.warps, "ELEMENT": ELEMENTS[dtype]}
    known |= {"AT_ONCE": THREADS_AT_ONCE, **constants}
    return {name: str(int(value)) for name, value in known.items()}


@functools.lru_cache(maxsize=1024)
def _loaded(source: Path, name: str, device: int, macros: tuple[tuple[str, str], ...]) -> CudaKernel:
    """One for each device: how much shared memory a kernel may have is a device's own."""
    return CudaKernel(_compiled(source, arch_here(), dict(macros)), name)


@functools.lru_cache(maxsize=1024)
def _at_once(kernel: CudaKernel, threads: int, shared: int, parts: int) -> int:
    return kernel.clusters_at_once(threads, shared, parts)


def _compiled(source: Path, arch: str, macros: Mapping[str, str]) -> Cubin:
    folders = [Path(__file__).parent]
    return compile_cubin(source.read_text("utf-8"), arch, defines=macros, folders=folders, name=str(source))
