"""Launch of Triton kernels over the rows of tensors, without Triton's Python overhead after the first call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from kernelwright.core.errors import DeviceError
from kernelwright.kernels.launch_cache import allocate_workspace, record_launch
from kernelwright.kernels.launch_codegen import ALIGNMENT_MASK, CURRENT_STREAM, RecordedLaunch, RowCountExpr, SeedArg
from kernelwright.kernels.operators import ShapeError
from kernelwright.kernels.rows import planning, tile
from kernelwright.kernels.rows.layout import RowLayout
from kernelwright.kernels.rows.tile import NUM_SLOTS, PHASE_COMBINE, PHASE_FUSED, PHASE_STORE

INTERPRETED = tile.INTERPRETED.value
TRITON_3_6 = triton.__version__.startswith("3.6.")
DEVICE_TYPE = "cpu" if INTERPRETED else "cuda"
MAX_CONCURRENT_LAUNCHES = 4
MAX_CACHED_LAUNCHERS = 4096
"""The cache is cleared when it is full."""
RESERVED_BYTES = 2**10
"""Shared memory that Triton keeps for itself."""


class RowView(NamedTuple):
    """A tensor as rows.

    Attributes:
        stride_args: for two levels (inner_size, stride_outer, stride_inner): row r starts at (r // inner_size) *
            stride_outer + (r % inner_size) * stride_inner. For three levels (inner_size, middle_size, stride_outer,
            stride_middle, stride_inner) likewise.
    """

    tensor: Tensor
    stride_args: tuple[int, ...]


def as_rows(x: Tensor, max_leading_dims: int = 2) -> RowView:
    """View the last dimension as rows; copies if the rows need more than `max_leading_dims` strides or are not
    dense."""
    if x.is_contiguous() and (N := x.shape[-1]) and x.numel() > N:
        return RowView(x, (*[1] * (max_leading_dims - 1), N, *[0] * (max_leading_dims - 1)))
    leading = _merge_dims(x)
    if (x.stride(-1) != 1 and x.shape[-1] > 1) or len(leading) > max_leading_dims:
        x = x.contiguous()
        leading = [(1, x.shape[-1])]
    sizes, strides = zip(*leading, *[(1, 0)] * (max_leading_dims - len(leading)), strict=True)
    return RowView(x, (*reversed(sizes[1:]), *strides))


def _merge_dims(x: Tensor) -> list[tuple[int, int]]:
    """Sizes and strides of the leading dimensions; dimensions that are contiguous with each other are merged."""
    merged: list[tuple[int, int]] = []
    for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    return merged


def launch(
    kernel: Any,
    layout: RowLayout,
    M: int,
    device: torch.device,
    arguments: tuple[Any, ...],
    *,
    num_programs: int = 0,
    independent_splits: bool = False,
    **constants: Any,
) -> None:
    """Launch a kernel over M rows.

    Args:
        kernel: takes `arguments`, M, the workspace, then its constants, those of the layout, and PHASE.
        num_programs: default is one program per tile.
        independent_splits: the splits of a row exchange nothing.
    Raises:
        ShapeError: more rows than a grid has programs.
    """
    if M >= 2**31:
        raise ShapeError(f"{M:,} rows exceed the grid limit of 2**31 - 1 programs")
    workspace = None
    if layout.num_splits > 1 and not independent_splits:
        workspace = allocate_workspace((M, NUM_SLOTS.value * layout.num_splits), torch.int64, device, zero=True)
    constants |= {
        "BLOCK_M": layout.block_m,
        "BLOCK_N": layout.block_n,
        "NUM_SPLITS": layout.num_splits,
        "RELOAD": layout.reload,
    }
    grid = num_programs or RowCountExpr(M, layout.block_m, layout.num_splits)
    for phase in launch_phases(1 if independent_splits else layout.num_splits, device):
        launch_programs(
            kernel, grid, device, (*arguments, M, workspace), PHASE=phase, num_warps=layout.num_warps, **constants
        )


def launch_programs(
    kernel: Any,
    grid: int | RowCountExpr,
    device: torch.device,
    arguments: tuple[Any, ...],
    *,
    num_warps: int,
    **constants: Any,
) -> None:
    """Launch a number of programs; nothing if it is 0.

    Args:
        grid: the number of programs, as a `RowCountExpr` if a replay for another number of rows has to recompute it.
    Raises:
        DeviceError: the tensors are on a device on which the kernels do not run.
    """
    if planning.ACTIVE_PLAN:
        planning.ACTIVE_PLAN.add_triton(kernel, arguments, {"num_warps": num_warps, **constants})
        record_launch(lambda: None)
        return
    if device.type != DEVICE_TYPE:
        expected = "CPU tensors, since TRITON_INTERPRET is set" if INTERPRETED else "CUDA tensors"
        raise DeviceError(
            f"expected {expected}, got {device}",
            next="TRITON_INTERPRET=1 in the environment runs the kernels slowly on the CPU",
        )
    num_programs = grid if isinstance(grid, int) else grid.value
    if not num_programs:
        return
    if INTERPRETED:
        kernel[(num_programs,)](*arguments, num_warps=num_warps, **constants)
        return
    values = [constants[name] for name in kernel.arg_names[len(arguments) :]]
    types = tuple(map(type, arguments))
    bind = _ARGUMENT_BINDERS.get((kernel.fn, types)) or _make_argument_binder(kernel, types)
    kernel_args, specialization = bind(*arguments)
    key = kernel.fn, device, num_warps, types, *values, *specialization
    with device_guard(device):
        if cached := _LAUNCHERS.get(key):
            run, prefix = cached
            stream = torch._C._cuda_getCurrentRawStream(device.index)
            run(num_programs, 1, 1, stream, *prefix, *kernel_args, *values)
        else:
            launch_pdl = uses_pdl(kernel, device)
            compiled = kernel[(num_programs,)](*arguments, num_warps=num_warps, launch_pdl=launch_pdl, **constants)
            if len(_LAUNCHERS) >= MAX_CACHED_LAUNCHERS:
                _LAUNCHERS.clear()
            run, prefix = _LAUNCHERS[key] = _find_launcher(compiled)
    record_launch(
        lambda: RecordedLaunch(
            run, (grid, 1, 1, CURRENT_STREAM, *prefix), (*_mark_dynamic_args(kernel, arguments), *values)
        )
    )


_LAUNCHERS: dict[tuple[Any, ...], tuple[Callable[..., None], tuple[Any, ...]]] = {}
"""The launcher of a compiled kernel and its arguments between the stream and the kernel's arguments, by everything
that Triton specializes on. The key holds the kernel's function: Triton hashes a kernel by its source, which takes a
microsecond."""


_ARGUMENT_BINDERS: dict[tuple[Any, tuple[type, ...]], Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]] = {}
"""By kernel and argument types: a function from the arguments to the launch arguments and the specialization key."""


def _make_argument_binder(kernel: Any, types: tuple[type, ...]) -> Callable[..., Any]:
    """Generate a function from a kernel's arguments to its launch arguments and its specialization key.

    Tensors are passed by address. The key holds what Triton specializes on: a tensor's dtype and 16-byte alignment,
    nothing of a float, an integer's value, or, if the parameter is not specialized, whether it fits 32 bits. One
    generated expression takes a third of the time of a loop.
    """
    kernel_args, specialization, addresses = [], [], []
    for i, (kind, param) in enumerate(zip(types, kernel.params, strict=False)):
        kernel_args.append(f"a{i}")
        if issubclass(kind, Tensor):
            addresses.append(f"(p{i} := a{i}.data_ptr())")
            kernel_args[-1] = f"p{i}"
            specialization.append(f"a{i}.dtype, p{i} & {ALIGNMENT_MASK} == 0")
        elif kind is int and param.do_not_specialize:
            specialization.append(f"-1 < a{i} < {2**31} or a{i}")
        elif kind is not float:
            specialization.append(f"a{i}")
    params = ", ".join(f"a{i}" for i in range(len(types)))
    result = f"(({', '.join(kernel_args)},), ({', '.join(specialization)},))"
    _ARGUMENT_BINDERS[kernel.fn, types] = bind = eval(f"lambda {params}: ({', '.join([*addresses, result])},)[-1]")
    return bind


@functools.cache
def uses_pdl(kernel: Any, device: torch.device) -> bool:
    """Whether to launch a kernel with programmatic dependent launch (PDL).

    The kernel has to be marked with `tile.programmatic_launch`; needs sm_90. Saves 0.4 to 0.6 us per kernel on an
    H200.
    """
    return getattr(kernel, "programmatic_launch", False) and torch.cuda.get_device_capability(device) >= (9, 0)


def _mark_dynamic_args(kernel: Any, arguments: tuple[Any, ...]) -> Iterator[Any]:
    """Mark the arguments that a replay recomputes: `seed`, and `M` and `numel` where Triton does not specialize
    them."""
    for name, argument, param in zip(kernel.arg_names, arguments, kernel.params, strict=False):
        if name == "seed":
            yield SeedArg(argument)
        elif name in ("M", "numel") and type(argument) is int and param.do_not_specialize:
            yield RowCountExpr(argument)
        else:
            yield argument


def _find_launcher(compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """The C launcher of a compiled kernel and its prefix arguments, bypassing Triton's Python wrapper where that is
    known to do nothing else."""
    run, last = compiled.run, (compiled.packed_metadata, None, None, None)
    if not TRITON_3_6 or run.global_scratch_size or run.profile_scratch_size:
        return run, (compiled.function, *last)
    return run.launch, (compiled.function, run.launch_cooperative_grid, run.launch_pdl, None, None, *last)


def device_guard(device: torch.device) -> AbstractContextManager[None]:
    """Make `device` current; a null context if it is already, since `torch.cuda.device` costs microseconds."""
    return nullcontext() if device.index == torch._C._cuda_getDevice() else torch.cuda.device(device)


def can_grid_sync(layout: RowLayout, device: torch.device) -> bool:
    """Whether one launch can combine the splits of a row."""
    return len(launch_phases(layout.num_splits, device)) == 1


def launch_phases(num_splits: int, device: torch.device) -> tuple[int, ...]:
    """The PHASE of each launch over split rows.

    One fused launch if all splits of a row can be resident together, next to `MAX_CONCURRENT_LAUNCHES` - 1 other
    launches of this kind, each of which can hold back the running splits of its newest row; else two launches.
    """
    if num_splits == 1 or (not INTERPRETED and num_splits <= multiprocessors(device) // MAX_CONCURRENT_LAUNCHES):
        return (PHASE_FUSED.value,)
    return PHASE_STORE.value, PHASE_COMBINE.value


def multiprocessors(device: torch.device) -> int:
    """Number of SMs; 1 in the interpreter."""
    return planning.ACTIVE_PLAN.target.multiprocessors if planning.ACTIVE_PLAN else _multiprocessors(device)


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def shared_bytes(device: torch.device) -> int:
    """Shared memory available to one program, in bytes; 0 in the interpreter."""
    return planning.ACTIVE_PLAN.target.shared_bytes - RESERVED_BYTES if planning.ACTIVE_PLAN else _shared_bytes(device)


@functools.cache
def _shared_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin - RESERVED_BYTES
