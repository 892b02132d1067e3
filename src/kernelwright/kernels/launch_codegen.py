"""Calls written down and compiled: what allocates results and launches on other tensors than those it was written for.

Written down they take a third of what loops over launches and arguments cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kernelwright.kernels.dynamic_rows import MAX_ELEMENTS, LeadingDims, TensorGuard, make_tensor_guard

ALIGNMENT_MASK = 15
"""Of an address the bits that decide how wide loads can be."""
CACHE_MISS = object()
"""What a remembered call gives for arguments that are not like its own."""
GuardedCall = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Of arguments as they were given: a call on them, or MISSED."""
MAX_CACHED_DECISIONS = 4096
"""Numbers of rows for which it is known whether a replay is right, then all are forgotten."""
CURRENT_STREAM = object()
"""Stands for the handle of the current stream."""


class RecordedLaunch(NamedTuple):
    """
    Attributes:
        launcher: what launched.
        prefix_args: what it takes before the kernel's arguments, among them `CURRENT_STREAM`.
        kernel_args: the kernel's; tensors stand for their addresses, a `SeedArg` for the call's, `RowCountExpr` for a
            number of rows or elements.
    """

    launcher: Callable[..., None]
    prefix_args: tuple[Any, ...]
    kernel_args: tuple[Any, ...]


class SeedArg(NamedTuple):
    """Of a kernel's arguments one that the next call may have another of."""

    value: int


class RowCountExpr(NamedTuple):
    """Of a launch a number that follows from how many rows a call has: -(-total // each) * times.

    Attributes:
        total: rows, or all their elements.
    """

    total: int
    divisor: int = 1
    factor: int = 1

    @property
    def value(self) -> int:
        return -(-self.total // self.divisor) * self.factor


class RowCountGuard(NamedTuple):
    """What was decided by the number of rows: `function(rows, *about)` was `expected`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    expected: Any


class GeneratedFunction(NamedTuple):
    """A function's parameters and lines, and the values that it names."""

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
        known = dict(self.namespace)
        exec(f"def {self.signature}:\n" + "".join(f"    {line}\n" for line in self.lines), known)
        return known[self.signature.partition("(")[0]]


def fits_int32(seed: Any) -> bool:
    """Whether kernels take it by the type that most are of."""
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
    """The call, of tensors and the seed alone, MISSED where they begin elsewhere between multiples of 16 bytes, or not
    where another one does as it did here: which of two such tensors a launch was given, nobody can tell. None where a
    launch reads or writes what is neither given nor returned nor made for it, or a result is not new.
    Pointers are passed as numbers, since Triton asks the driver about each tensor.

    Args:
        leading: the call is for any sizes of these dimensions, and MISSED where a choice is another.
    """
    results = [] if result is None else [result] if isinstance(result, Tensor) else list(result)
    lists = {"t": tensors, "r": results, "s": [one for one, _ in allocations]}
    held = [
        (one.data_ptr(), f"{letter}{at}")
        for letter, some in lists.items()
        for at, one in enumerate(some)
        if one.numel()
    ]
    first = dict(reversed(held))  # of those that begin at one address
    twice = [(name, first[one]) for one, name in held if name != first[one]]
    own = [one for one in launches if one is not None]
    if not own or len(own) < len(launches) or any(name[0] != "t" for name, _ in twice):
        return None
    index = [*results, *tensors][0].device.index
    known: dict[str, Any] = {"there": index, "here": torch._C._cuda_getDevice, "device": torch.cuda.device}
    known |= {"stream_of": torch._C._cuda_getCurrentRawStream, "like": torch.empty_like, "strided": torch.empty_strided}
    known |= {"zeros": torch.zeros, "empty": torch.empty, "missed": CACHE_MISS}
    parameters = ", ".join([_argument_list(tensors), *["seed" for _ in seed]])
    lines = ["if here() != there:", "    with device(there):", f"        return again({parameters})"]
    lines += _row_guard_lines(leading, row_guards, known) if leading else []
    lines += _alignment_lines([(name, one & ALIGNMENT_MASK) for one, name in held if name[0] == "t"], twice)
    new = [*((one, False) for one in results), *allocations]
    if leading and not all(one.is_contiguous() for one, _ in new):
        return None
    for at, (one, zero) in enumerate(new):
        name = f"r{at}" if at < len(results) else f"s{at - len(results)}"
        made_by = (
            _zeros_text(one, name, known, leading) if zero else _allocation_text(tensors, one, name, known, leading)
        )
        lines.append(f"{name} = {made_by}")
    lines += ["stream = stream_of(there)", *(f"p{name} = {name}.data_ptr()" for _, name in held if name[0] != "t")]
    for at, launch in enumerate(own):
        if (line := _launch_line(at, launch, seed, first, known, leading)) is None:
            return None
        lines.append(line)
    given = "r0" if isinstance(result, Tensor) else f"({_argument_list(results, 'r')},)" if results else "None"
    lines.append(f"return {given}")
    return GeneratedFunction(f"again({parameters})", lines, known)


def _alignment_lines(begins: list[tuple[str, int]], twice: list[tuple[str, str]]) -> list[str]:
    """Lines that take the addresses of what is given, and give up where one lies otherwise between multiples of 16
    bytes, or no longer where another one does."""
    lines = [f"p{name} = {name}.data_ptr()" for name, _ in begins]
    if not begins:
        return lines
    wrong = " or ".join(f"p{name} & {ALIGNMENT_MASK} != {at}" for name, at in begins)
    if not any(at for _, at in begins):
        wrong = f"({' | '.join(f'p{name}' for name, _ in begins)}) & {ALIGNMENT_MASK}"
    wrong = " or ".join([wrong, *(f"p{name} != p{other}" for name, other in twice)])
    return [*lines, f"if {wrong}:", "    return missed"]


def _launch_line(
    at: int,
    launch: RecordedLaunch,
    seed: tuple[int, ...],
    names: dict[int, str],
    known: dict[str, Any],
    leading: LeadingDims | None,
) -> str | None:
    """The line of a launch; None where it is given a tensor whose address has no name."""
    known[f"run{at}"], passed = launch.launcher, []
    for number, one in enumerate((*launch.prefix_args, *launch.kernel_args)):
        if one is CURRENT_STREAM:
            passed.append("stream")
        elif isinstance(one, Tensor):
            if (name := names.get(one.data_ptr())) is None:
                return None
            passed.append(f"p{name}")
        elif isinstance(one, SeedArg) and one.value in seed:
            passed.append("seed")
        elif isinstance(one, RowCountExpr) and (counted := _row_count_text(one, leading)):
            passed.append(counted)
        else:
            value = one.value if isinstance(one, SeedArg) else one.value if isinstance(one, RowCountExpr) else one
            known[constant := f"c{at}_{number}"] = value
            passed.append(constant)
    return f"run{at}({', '.join(passed)})"


def _row_guard_lines(leading: LeadingDims, choices: Sequence[RowCountGuard], known: dict[str, Any]) -> list[str]:
    """Lines that count the rows, and give up where these need another kernel or another launch, which is decided once
    for each number of rows."""
    x = f"t{leading.tensor_index}"
    lines = [f"m = {x}.numel() // {leading.columns}"]
    if len(leading.sizes) > 1:
        lines.append(f"sizes = {x}.shape[:-1]")
    other = [f"m < 2 or m * {leading.columns} >= {MAX_ELEMENTS}"]
    for at, (function, about, value) in enumerate(dict.fromkeys(choices)):
        known |= {f"choice{at}": function, f"value{at}": value, f"about{at}": about}
        other.append(f"(value := choice{at}(m, *about{at})) is not value{at} and value != value{at}")
    known["decided"] = {}
    lines += ["fits = decided.get(m)", "if fits is None:"]
    lines += [f"    if len(decided) >= {MAX_CACHED_DECISIONS}:", "        decided.clear()"]
    lines += [f"    fits = decided[m] = not ({' or '.join(other)})"]
    return [*lines, "if not fits:", "    return missed"]


def _row_count_text(counted: RowCountExpr, leading: LeadingDims | None) -> str | None:
    """As it follows from the rows m, if it does."""
    if leading is None or counted.total not in (leading.rows, leading.rows * leading.columns):
        return None
    count = "m" if counted.total == leading.rows else f"m * {leading.columns}"
    return count if counted[1:] == (1, 1) else f"-(-{count} // {counted.divisor}) * {counted.factor}"


def _argument_list(tensors: Sequence[Tensor], letter: str = "t") -> str:
    return ", ".join(f"{letter}{at}" for at in range(len(tensors)))


def _allocation_text(
    tensors: Sequence[Tensor], result: Tensor, name: str, known: dict[str, Any], leading: LeadingDims | None
) -> str:
    """An expression that allocates one that lies as the result did; the quickest is one that lies as what is given."""
    lies = tuple(result.shape), result.stride()
    for at, given in enumerate(tensors):
        like = torch.empty_like(given, device="meta")
        same = (tuple(like.shape), like.stride(), like.dtype, given.device) == (*lies, result.dtype, result.device)
        if same and (leading is None or given.is_contiguous()):
            return f"like(t{at})"
    known[f"kind_{name}"] = {"dtype": result.dtype, "device": result.device}
    if leading and (size := _size_text(result, leading)):
        plain = len(leading.sizes) == 1 and size.startswith("(m")  # no stride depends on the rows
        return f"strided({size}, {result.stride()}, **kind_{name})" if plain else f"empty({size}, **kind_{name})"
    known[f"lies_{name}"] = lies
    return f"strided(*lies_{name}, **kind_{name})"


def _zeros_text(made: Tensor, name: str, known: dict[str, Any], leading: LeadingDims | None) -> str:
    known[f"kind_{name}"] = {"dtype": made.dtype, "device": made.device}
    size = _size_text(made, leading) if leading else None
    return f"zeros({size or tuple(made.shape)}, **kind_{name})"


def _size_text(tensor: Tensor, leading: LeadingDims) -> str | None:
    """A shape that contains the leading sizes, or begins with how many rows they are, as an expression."""
    if around := leading.split_shape(tensor.shape):
        prefix, suffix = around
        middle = "m" if len(leading.sizes) == 1 else "*sizes"
    elif tensor.dim() and tensor.shape[0] == leading.rows:
        prefix, middle, suffix = (), "m", tensor.shape[1:]
    else:
        return None
    return f"({', '.join([*map(str, prefix), middle, *map(str, suffix)])},)"


def _tensor_guards(tensors: Sequence[Tensor], checked: Sequence[TensorGuard]) -> Callable[..., bool] | None:
    """torch's guards of these tensors; None where it has none."""
    try:
        from torch._C._dynamo.guards import TensorGuards  # pyright: ignore

        about: dict[str, Any] = {"dynamic_dims_sizes": [one.sizes for one in checked]}
        about["dynamic_dims_strides"] = [one.strides for one in checked]
        return TensorGuards(*tensors, **about).check
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
    """`replay` on arguments that are like these, but for the leading sizes if given, else MISSED; None where torch has
    no guards for tensors."""
    different = list({id(one): one for one in tensors}.values())  # guards take no tensor twice
    leads = None if leading is None else tensors[leading.tensor_index]
    checked = [make_tensor_guard(one, leading, is_leader=one is leads) for one in different]
    if (check := _tensor_guards(different, checked)) is None:
        return None
    known: dict[str, Any] = {"check": check, "again": replay, "missed": CACHE_MISS, "asks": torch.is_grad_enabled}
    known["short"] = fits_int32
    names = ["seed" if at == seed_index else f"a{at}" for at in range(len(args))]
    lines = [f"if len(args) != {len(args)} or len(kwargs) != {len(kwargs)}:", "    return missed"]
    lines += [f"({', '.join(names)},) = args"] if names else []
    for name in kwargs:
        names.append("seed" if name == "seed" and seed_index is not None else f"k_{name}")
        lines.append(f"{names[-1]} = kwargs.get({name!r}, missed)")
    given, unlike = [], ["asks()"] if any(one.requires_grad for one in tensors) else []
    seen: dict[int, str] = {}
    for name, one in zip(names, (*args, *kwargs.values()), strict=True):
        if isinstance(one, Tensor):
            given.append(name)
            if (first := seen.setdefault(id(one), name)) != name:
                unlike.append(f"{name} is not {first}")
        elif name == "seed":
            unlike.append("not short(seed)")
        elif one is None:
            unlike.append(f"{name} is not None")
        else:
            known[f"c_{name}"], known[f"t_{name}"] = one, type(one)
            unlike.append(f"type({name}) is not t_{name} or {name} != c_{name}")
    unlike.append(f"not check({', '.join(seen.values())})")
    for one, (_, _, conditions) in zip(different, checked, strict=True):
        unlike += [f"not {text.format(a=seen[id(one)], x=seen[id(leads)])}" for text in conditions]
    given += [name for name in names if name == "seed"]
    lines += [f"if {' or '.join(unlike)}:", "    return missed", f"return again({', '.join(given)})"]
    return GeneratedFunction("like(args, kwargs)", lines, known).compile()
