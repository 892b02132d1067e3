"""Code generation for replays: functions that allocate results and launch kernels on other tensors.

The generated functions take a third of the time of loops over launches and arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernelwright.kernels.dynamic_rows import MAX_ELEMENTS, LeadingDims, TensorGuard, make_tensor_guard

ALIGNMENT_MASK = 15
"""Address bits that determine whether loads can be vectorized."""
CACHE_MISS = object()
"""Returned by a replay or guarded call whose guards fail."""
GuardedCall = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Takes the original arguments; returns the result or CACHE_MISS."""
MAX_CACHED_DECISIONS = 4096
"""Numbers of rows for which the guards' result is cached; the cache is cleared when it is full."""
CURRENT_STREAM = object()
"""Placeholder for the handle of the current stream."""


class RecordedLaunch(NamedTuple):
    """A recorded launch.

    Attributes:
        launcher: the function that launched.
        prefix_args: its arguments before the kernel's, among them `CURRENT_STREAM`.
        kernel_args: the kernel's arguments; a tensor for its address, `SeedArg` for the call's seed, `RowCountExpr`
            for a number of rows or elements.
    """

    launcher: Callable[..., None]
    prefix_args: tuple[Any, ...]
    kernel_args: tuple[Any, ...]


class SeedArg(NamedTuple):
    """A kernel argument that is the call's seed."""

    value: int


class RowCountExpr(NamedTuple):
    """A launch parameter that follows from the number of rows: ceil(total / divisor) * factor.

    Attributes:
        total: number of rows, or of all their elements.
    """

    total: int
    divisor: int = 1
    factor: int = 1

    @property
    def value(self) -> int:
        """The value for the recorded number of rows."""
        return -(-self.total // self.divisor) * self.factor


class RowCountGuard(NamedTuple):
    """A decision that depends on the number of rows: `function(rows, *args)` was `expected`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    expected: Any


class GeneratedFunction(NamedTuple):
    """The signature and lines of a function, and its globals."""

    signature: str
    lines: list[str]
    namespace: dict[str, Any]

    def equals(self, other: GeneratedFunction) -> bool:
        """Whether both compute the same; 1, 1.0 and True are different values."""
        if self[:2] != other[:2] or self.namespace.keys() != other.namespace.keys():
            return False
        pairs = [(one, other.namespace[name]) for name, one in self.namespace.items()]
        return all(type(one) is type(two) and one == two for one, two in pairs)

    def compile(self) -> Callable[..., Any]:
        """Compile the function."""
        namespace = dict(self.namespace)
        exec(f"def {self.signature}:\n" + "".join(f"    {line}\n" for line in self.lines), namespace)
        return namespace[self.signature.partition("(")[0]]


def fits_int32(seed: Any) -> bool:
    """Whether a seed is passed to kernels as a 32-bit integer."""
    return type(seed) is int and 0 <= seed < 2**31


def generate_replay(
    tensors: Sequence[Tensor],
    seed: tuple[int, ...],
    result: Any,
    launches: list[RecordedLaunch | None],
    allocations: list[tuple[Tensor, bool]],
    row_guards: Sequence[RowCountGuard] = (),
    leading: LeadingDims | None = None,
) -> GeneratedFunction | None:
    """Generate a replay of a recorded call as a function of the tensors and the seed.

    The replay returns CACHE_MISS if the 16-byte alignment of a tensor differs from the recording, or if tensors do not
    alias as in the recording: which of two aliasing tensors was passed to a launch is unknown. Pointers are passed as
    integers, since Triton queries the driver for each tensor.

    Args:
        leading: the replay is for any sizes of these dimensions; CACHE_MISS if a row guard fails.
    Returns:
        None if a launch accesses memory other than arguments, results and allocations, or if a result is not new.
    """
    results = [] if result is None else [result] if isinstance(result, Tensor) else list(result)
    lists = {"t": tensors, "r": results, "s": [one for one, _ in allocations]}
    addresses = [
        (one.data_ptr(), f"{prefix}{i}") for prefix, some in lists.items() for i, one in enumerate(some) if one.numel()
    ]
    names = dict(reversed(addresses))  # the first of those that alias
    aliases = [(name, names[address]) for address, name in addresses if name != names[address]]
    replayable = [one for one in launches if one is not None]
    if not replayable or len(replayable) < len(launches) or any(name[0] != "t" for name, _ in aliases):
        return None
    namespace: dict[str, Any] = {
        "device_index": [*results, *tensors][0].device.index,
        "current_device": torch._C._cuda_getDevice,
        "device_guard": torch.cuda.device,
        "stream_of": torch._C._cuda_getCurrentRawStream,
        "empty_like": torch.empty_like,
        "empty_strided": torch.empty_strided,
        "zeros": torch.zeros,
        "empty": torch.empty,
        "miss": CACHE_MISS,
    }
    parameters = ", ".join([_argument_list(tensors), *["seed" for _ in seed]])
    lines = ["if current_device() != device_index:", "    with device_guard(device_index):"]
    lines += [f"        return replay({parameters})"]
    lines += _row_guard_lines(leading, row_guards, namespace) if leading else []
    lines += _alignment_lines([(name, one & ALIGNMENT_MASK) for one, name in addresses if name[0] == "t"], aliases)
    new = [*((one, False) for one in results), *allocations]
    if leading and not all(one.is_contiguous() for one, _ in new):
        return None
    for i, (one, zero) in enumerate(new):
        name = f"r{i}" if i < len(results) else f"s{i - len(results)}"
        allocation = (
            _zeros_text(one, name, namespace, leading)
            if zero
            else _allocation_text(tensors, one, name, namespace, leading)
        )
        lines.append(f"{name} = {allocation}")
    lines.append("stream = stream_of(device_index)")
    lines += [f"p{name} = {name}.data_ptr()" for _, name in addresses if name[0] != "t"]
    for i, launch in enumerate(replayable):
        if (line := _launch_line(i, launch, seed, names, namespace, leading)) is None:
            return None
        lines.append(line)
    returned = "r0" if isinstance(result, Tensor) else f"({_argument_list(results, 'r')},)" if results else "None"
    lines.append(f"return {returned}")
    return GeneratedFunction(f"replay({parameters})", lines, namespace)


def _alignment_lines(alignments: list[tuple[str, int]], aliases: list[tuple[str, str]]) -> list[str]:
    """Lines that take the addresses of the arguments and return on another alignment or aliasing."""
    lines = [f"p{name} = {name}.data_ptr()" for name, _ in alignments]
    if not alignments:
        return lines
    mismatch = " or ".join(f"p{name} & {ALIGNMENT_MASK} != {offset}" for name, offset in alignments)
    if not any(offset for _, offset in alignments):
        mismatch = f"({' | '.join(f'p{name}' for name, _ in alignments)}) & {ALIGNMENT_MASK}"
    mismatch = " or ".join([mismatch, *(f"p{name} != p{other}" for name, other in aliases)])
    return [*lines, f"if {mismatch}:", "    return miss"]


def _launch_line(
    index: int,
    launch: RecordedLaunch,
    seed: tuple[int, ...],
    names: dict[int, str],
    namespace: dict[str, Any],
    leading: LeadingDims | None,
) -> str | None:
    """The line of a launch; None if it takes a tensor whose address has no name."""
    namespace[f"run{index}"], arguments = launch.launcher, []
    for number, one in enumerate((*launch.prefix_args, *launch.kernel_args)):
        if one is CURRENT_STREAM:
            arguments.append("stream")
        elif isinstance(one, Tensor):
            if (name := names.get(one.data_ptr())) is None:
                return None
            arguments.append(f"p{name}")
        elif isinstance(one, SeedArg) and one.value in seed:
            arguments.append("seed")
        elif isinstance(one, RowCountExpr) and (text := _row_count_text(one, leading)):
            arguments.append(text)
        else:
            value = one.value if isinstance(one, SeedArg) else one.value if isinstance(one, RowCountExpr) else one
            namespace[constant := f"c{index}_{number}"] = value
            arguments.append(constant)
    return f"run{index}({', '.join(arguments)})"


def _row_guard_lines(leading: LeadingDims, guards: Sequence[RowCountGuard], namespace: dict[str, Any]) -> list[str]:
    """Lines that count the rows and return if a guard fails; cached by number of rows."""
    x = f"t{leading.tensor_index}"
    lines = [f"m = {x}.numel() // {leading.columns}"]
    if len(leading.sizes) > 1:
        lines.append(f"sizes = {x}.shape[:-1]")
    mismatch = [f"m < 2 or m * {leading.columns} >= {MAX_ELEMENTS}"]
    for i, (function, args, expected) in enumerate(dict.fromkeys(guards)):
        namespace |= {f"guard{i}": function, f"expected{i}": expected, f"args{i}": args}
        mismatch.append(f"(value := guard{i}(m, *args{i})) is not expected{i} and value != expected{i}")
    namespace["decisions"] = {}
    lines += ["is_valid = decisions.get(m)", "if is_valid is None:"]
    lines += [f"    if len(decisions) >= {MAX_CACHED_DECISIONS}:", "        decisions.clear()"]
    lines += [f"    is_valid = decisions[m] = not ({' or '.join(mismatch)})"]
    return [*lines, "if not is_valid:", "    return miss"]


def _row_count_text(expr: RowCountExpr, leading: LeadingDims | None) -> str | None:
    """An expression of the number of rows m; None if it does not follow from it."""
    if leading is None or expr.total not in (leading.rows, leading.rows * leading.columns):
        return None
    total = "m" if expr.total == leading.rows else f"m * {leading.columns}"
    return total if expr[1:] == (1, 1) else f"-(-{total} // {expr.divisor}) * {expr.factor}"


def _argument_list(tensors: Sequence[Tensor], prefix: str = "t") -> str:
    return ", ".join(f"{prefix}{i}" for i in range(len(tensors)))


def _allocation_text(
    tensors: Sequence[Tensor], result: Tensor, name: str, namespace: dict[str, Any], leading: LeadingDims | None
) -> str:
    """An expression that allocates a tensor with the layout of the result; empty_like of an argument is fastest."""
    layout = tuple(result.shape), result.stride()
    for i, tensor in enumerate(tensors):
        like = torch.empty_like(tensor, device="meta")
        same = (tuple(like.shape), like.stride(), like.dtype, tensor.device) == (*layout, result.dtype, result.device)
        if same and (leading is None or tensor.is_contiguous()):
            return f"empty_like(t{i})"
    namespace[f"options_{name}"] = {"dtype": result.dtype, "device": result.device}
    if leading and (size := _size_text(result, leading)):
        if len(leading.sizes) == 1 and size.startswith("(m"):  # no stride depends on the rows
            return f"empty_strided({size}, {result.stride()}, **options_{name})"
        return f"empty({size}, **options_{name})"
    namespace[f"layout_{name}"] = layout
    return f"empty_strided(*layout_{name}, **options_{name})"


def _zeros_text(workspace: Tensor, name: str, namespace: dict[str, Any], leading: LeadingDims | None) -> str:
    namespace[f"options_{name}"] = {"dtype": workspace.dtype, "device": workspace.device}
    size = _size_text(workspace, leading) if leading else None
    return f"zeros({size or tuple(workspace.shape)}, **options_{name})"


def _size_text(tensor: Tensor, leading: LeadingDims) -> str | None:
    """An expression for a shape that contains the leading sizes or starts with the number of rows; None for others."""
    if split := leading.split_shape(tensor.shape):
        prefix, suffix = split
        middle = "m" if len(leading.sizes) == 1 else "*sizes"
    elif tensor.dim() and tensor.shape[0] == leading.rows:
        prefix, middle, suffix = (), "m", tensor.shape[1:]
    else:
        return None
    return f"({', '.join([*map(str, prefix), middle, *map(str, suffix)])},)"


def _tensor_guards(tensors: Sequence[Tensor], guards: Sequence[TensorGuard]) -> Callable[..., bool] | None:
    """torch's TensorGuards of these tensors; None if this torch has none."""
    try:
        from torch._C._dynamo.guards import TensorGuards  # pyright: ignore

        options: dict[str, Any] = {"dynamic_dims_sizes": [one.sizes for one in guards]}
        options["dynamic_dims_strides"] = [one.strides for one in guards]
        return TensorGuards(*tensors, **options).check
    except (ImportError, TypeError):
        return None


def compile_guarded_call(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    seed_index: int | None,
    tensors: Sequence[Tensor],
    replay: Callable[..., Any],
    leading: LeadingDims | None = None,
) -> GuardedCall | None:
    """Compile a function that calls `replay` if its arguments match these, and else returns CACHE_MISS.

    Args:
        leading: these sizes may differ.
    Returns:
        None if torch has no guards for tensors.
    """
    unique = list({id(one): one for one in tensors}.values())  # TensorGuards rejects duplicates
    leader = None if leading is None else tensors[leading.tensor_index]
    guards = [make_tensor_guard(one, leading, is_leader=one is leader) for one in unique]
    if (check := _tensor_guards(unique, guards)) is None:
        return None
    namespace: dict[str, Any] = {
        "check": check,
        "replay": replay,
        "miss": CACHE_MISS,
        "grad_enabled": torch.is_grad_enabled,
        "fits_int32": fits_int32,
    }
    names = ["seed" if i == seed_index else f"a{i}" for i in range(len(args))]
    lines = [f"if len(args) != {len(args)} or len(kwargs) != {len(kwargs)}:", "    return miss"]
    lines += [f"({', '.join(names)},) = args"] if names else []
    for name in kwargs:
        names.append("seed" if name == "seed" and seed_index is not None else f"k_{name}")
        lines.append(f"{names[-1]} = kwargs.get({name!r}, miss)")
    replay_args, mismatch = [], ["grad_enabled()"] if any(one.requires_grad for one in tensors) else []
    tensor_names: dict[int, str] = {}
    for name, one in zip(names, (*args, *kwargs.values()), strict=True):
        if isinstance(one, Tensor):
            replay_args.append(name)
            if (first := tensor_names.setdefault(id(one), name)) != name:
                mismatch.append(f"{name} is not {first}")
        elif name == "seed":
            mismatch.append("not fits_int32(seed)")
        elif one is None:
            mismatch.append(f"{name} is not None")
        else:
            namespace[f"c_{name}"], namespace[f"t_{name}"] = one, type(one)
            mismatch.append(f"type({name}) is not t_{name} or {name} != c_{name}")
    mismatch.append(f"not check({', '.join(tensor_names.values())})")
    for one, (_, _, conditions) in zip(unique, guards, strict=True):
        mismatch += [f"not {text.format(a=tensor_names[id(one)], x=tensor_names[id(leader)])}" for text in conditions]
    replay_args += [name for name in names if name == "seed"]
    lines += [f"if {' or '.join(mismatch)}:", "    return miss", f"return replay({', '.join(replay_args)})"]
    return GeneratedFunction("guarded_call(args, kwargs)", lines, namespace).compile()
