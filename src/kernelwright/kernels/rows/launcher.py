"""From tensors to the launch of a program over their rows."""

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
"""That are kept, then all are forgotten."""
RESERVED_BYTES = 2**10


class RowView(NamedTuple):
    """A tensor as rows.

    Attributes:
        stride_args: of two levels, (inner, outer stride, inner stride): row r begins at r // inner and r % inner times
            these. Of three, (inner, middle, outer stride, middle stride, inner stride) likewise.
    """

    tensor: Tensor
    stride_args: tuple[int, ...]


def as_rows(x: Tensor, max_leading_dims: int = 2) -> RowView:
    """The last dimension as rows: as they lie where so many levels tell where, else a copy."""
    if x.is_contiguous() and (N := x.shape[-1]) and x.numel() > N:
        return RowView(x, (*[1] * (max_leading_dims - 1), N, *[0] * (max_leading_dims - 1)))
    leading = _merge_dims(x)
    if (x.stride(-1) != 1 and x.shape[-1] > 1) or len(leading) > max_leading_dims:
        x = x.contiguous()
        leading = [(1, x.shape[-1])]
    sizes, strides = zip(*leading, *[(1, 0)] * (max_leading_dims - len(leading)), strict=True)
    return RowView(x, (*reversed(sizes[1:]), *strides))


def _merge_dims(x: Tensor) -> list[tuple[int, int]]:
    """Sizes and strides of the leading dimensions, those that lie as one taken together."""
    found: list[tuple[int, int]] = []
    for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == size * stride:
            found[-1] = found[-1][0] * size, stride
        else:
            found.append((size, stride))
    return found


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
    """Launches a program over M rows.

    Args:
        kernel: takes `arguments`, M, where parts of a row write down what they found, then its constants, the layout's,
            and PHASE.
        num_programs: as many as there are tiles, unless each has several.
        independent_splits: parts of a row have nothing to tell each other.
    """
    if M >= 2**31:
        raise ShapeError(f"{M:,} rows are more than programs count")
    notes = None
    if layout.num_splits > 1 and not independent_splits:
        notes = allocate_workspace((M, NUM_SLOTS.value * layout.num_splits), torch.int64, device, zero=True)
    constants |= {
        "BLOCK_M": layout.block_m,
        "BLOCK_N": layout.block_n,
        "NUM_SPLITS": layout.num_splits,
        "RELOAD": layout.reload,
    }
    grid = num_programs or RowCountExpr(M, layout.block_m, layout.num_splits)
    for step in launch_phases(1 if independent_splits else layout.num_splits, device):
        launch_programs(
            kernel, grid, device, (*arguments, M, notes), PHASE=step, num_warps=layout.num_warps, **constants
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
    """Launches so many programs; none for nothing.

    Args:
        grid: how many, and, for a replay with another number of rows, how that follows from the rows or elements.

    Raises:
        DeviceError: the tensors are where the kernels do not run.
    """
    if planning.ACTIVE_PLAN:
        planning.ACTIVE_PLAN.add_triton(kernel, arguments, {"num_warps": num_warps, **constants})
        record_launch(lambda: None)
        return
    if device.type != DEVICE_TYPE:
        where = "on the CPU, where it is interpreted" if INTERPRETED else "on a CUDA device"
        raise DeviceError(
            f"this kernel runs {where}; its tensors are on {device}",
            next="TRITON_INTERPRET=1 in the environment runs it slowly on the CPU",
        )
    programs = grid if isinstance(grid, int) else grid.value
    if not programs:
        return
    if INTERPRETED:
        kernel[(programs,)](*arguments, num_warps=num_warps, **constants)
        return
    values = [constants[name] for name in kernel.arg_names[len(arguments) :]]
    kinds = tuple(map(type, arguments))
    passed, about = (_ARGUMENT_BINDERS.get((kernel.fn, kinds)) or _make_argument_binder(kernel, kinds))(*arguments)
    key = kernel.fn, device, num_warps, kinds, *values, *about
    with device_guard(device):
        if found := _LAUNCHERS.get(key):
            run, about = found
            run(programs, 1, 1, torch._C._cuda_getCurrentRawStream(device.index), *about, *passed, *values)
        else:
            early = uses_pdl(kernel, device)
            compiled = kernel[(programs,)](*arguments, num_warps=num_warps, launch_pdl=early, **constants)
            if len(_LAUNCHERS) >= MAX_CACHED_LAUNCHERS:
                _LAUNCHERS.clear()
            run, about = _LAUNCHERS[key] = _find_launcher(compiled)
    record_launch(
        lambda: RecordedLaunch(
            run, (grid, 1, 1, CURRENT_STREAM, *about), (*_mark_dynamic_args(kernel, arguments), *values)
        )
    )


_LAUNCHERS: dict[tuple[Any, ...], tuple[Callable[..., None], tuple[Any, ...]]] = {}
"""What launches a compiled kernel, and what that takes between the stream and the kernel's arguments, by all that
Triton looks at to compile it. Kernels are here by the functions that they were made of: Triton hashes a kernel by its
source, which takes a microsecond."""


_ARGUMENT_BINDERS: dict[tuple[Any, tuple[type, ...]], Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]] = {}
"""Of a kernel and the types of its arguments: of the arguments, what a launch takes and what they are compiled for."""


def _make_argument_binder(kernel: Any, kinds: tuple[type, ...]) -> Callable[..., Any]:
    """One expression, which takes a third of what a loop does: of tensors their addresses, and all that Triton compiles
    a kernel for: of a tensor its dtype and whether it begins at a multiple of 16 bytes, of a float nothing, of an
    integer its value, or where Triton does not specialize it whether it is short."""
    passed, about, addresses = [], [], []
    for at, (kind, param) in enumerate(zip(kinds, kernel.params, strict=False)):
        passed.append(f"a{at}")
        if issubclass(kind, Tensor):
            addresses.append(f"(p{at} := a{at}.data_ptr())")
            passed[-1] = f"p{at}"
            about.append(f"a{at}.dtype, p{at} & {ALIGNMENT_MASK} == 0")
        elif kind is int and param.do_not_specialize:
            about.append(f"-1 < a{at} < {2**31} or a{at}")
        elif kind is not float:
            about.append(f"a{at}")
    given = ", ".join(f"a{at}" for at in range(len(kinds)))
    launched = f"(({', '.join(passed)},), ({', '.join(about)},))"
    text = f"lambda {given}: ({', '.join([*addresses, launched])},)[-1]"
    _ARGUMENT_BINDERS[kernel.fn, kinds] = bound = eval(text)
    return bound


@functools.cache
def uses_pdl(kernel: Any, device: torch.device) -> bool:
    """Whether it is declared to wait for what was launched before (`tile.programmatic_launch`) and runs where it can,
    and so may be launched beside the end of that: 0.4 to 0.6 us less for each kernel on an H200."""
    return getattr(kernel, "programmatic_launch", False) and torch.cuda.get_device_capability(device) >= (9, 0)


def _mark_dynamic_args(kernel: Any, arguments: tuple[Any, ...]) -> Iterator[Any]:
    """A kernel's `seed` is the call's, `M` and `count` its rows and elements where Triton does not specialize them."""
    for name, one, param in zip(kernel.arg_names, arguments, kernel.params, strict=False):
        if name == "seed":
            yield SeedArg(one)
        elif name in ("M", "numel") and type(one) is int and param.do_not_specialize:
            yield RowCountExpr(one)
        else:
            yield one


def _find_launcher(compiled: Any) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """Past the launcher's own Python where that is known to do nothing more."""
    run, last = compiled.run, (compiled.packed_metadata, None, None, None)
    if not TRITON_3_6 or run.global_scratch_size or run.profile_scratch_size:
        return run, (compiled.function, *last)
    return run.launch, (compiled.function, run.launch_cooperative_grid, run.launch_pdl, None, None, *last)


def device_guard(device: torch.device) -> AbstractContextManager[None]:
    """Where launches go there; `torch.cuda.device` costs microseconds."""
    return nullcontext() if device.index == torch._C._cuda_getDevice() else torch.cuda.device(device)


def can_grid_sync(layout: RowLayout, device: torch.device) -> bool:
    """Whether a program can wait for the other parts of its row: one launch is enough."""
    return len(launch_phases(layout.num_splits, device)) == 1


def launch_phases(parts: int, device: torch.device) -> tuple[int, ...]:
    """What each launch does of programs that wait for each other: all in one where all parts run at once, beside those
    of some other launches of the same kind, each of which can hold back what is running of its newest row."""
    if parts == 1 or (not INTERPRETED and parts <= multiprocessors(device) // MAX_CONCURRENT_LAUNCHES):
        return (PHASE_FUSED.value,)
    return PHASE_STORE.value, PHASE_COMBINE.value


def multiprocessors(device: torch.device) -> int:
    """Of a device; the interpreter does one thing after another."""
    return planning.ACTIVE_PLAN.target.multiprocessors if planning.ACTIVE_PLAN else _multiprocessors(device)


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def shared_bytes(device: torch.device) -> int:
    """The shared memory that one program may have but for what Triton keeps for itself; the interpreter has none."""
    return planning.ACTIVE_PLAN.target.shared_bytes - RESERVED_BYTES if planning.ACTIVE_PLAN else _shared_bytes(device)


@functools.cache
def _shared_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin - RESERVED_BYTES
