"""Calls written down and compiled: what allocates results and launches on other tensors than those it was written for.

Written down they take a third of what loops over launches and arguments cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

ALIGNED = 15
"""Of an address the bits that decide how wide loads can be."""
MISSED = object()
"""What a remembered call gives for arguments that are not like its own."""
Recent = Callable[[tuple[Any, ...], dict[str, Any]], Any]
"""Of arguments as they were given: a call on them, or MISSED."""
STREAM = object()
"""Stands for the handle of the current stream."""


class Launch(NamedTuple):
    """
    Attributes:
        run: what launched.
        before: what it takes before the kernel's arguments, among them `STREAM`.
        arguments: the kernel's; tensors stand for their addresses, a `Seed` for the call's.
    """

    run: Callable[..., None]
    before: tuple[Any, ...]
    arguments: tuple[Any, ...]


class Seed(NamedTuple):
    """Of a kernel's arguments one that the next call may have another of."""

    value: int


def is_short(seed: Any) -> bool:
    """Whether kernels take it by the type that most are of."""
    return type(seed) is int and 0 <= seed < 2**31


def call_again(
    tensors: Sequence[Tensor],
    seed: tuple[int, ...],
    result: Any,
    launches: list[Launch | None],
    made: list[tuple[Tensor, bool]],
) -> Callable[..., Any] | None:
    """The call, of tensors and the seed alone, MISSED where they begin elsewhere between multiples of 16 bytes, or not
    where another one does as it did here: which of two such tensors a launch was given, nobody can tell. None where a
    launch reads or writes what is neither given nor returned nor made for it, or a result is not new.
    Pointers are passed as numbers, since Triton asks the driver about each tensor."""
    results = [] if result is None else [result] if isinstance(result, Tensor) else list(result)
    lists = {"t": tensors, "r": results, "s": [one for one, _ in made]}
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
    known |= {"zeros": torch.zeros, "missed": MISSED}
    begins = [(name, one & ALIGNED) for one, name in held if name[0] == "t"]
    parameters = ", ".join([_given(tensors), *["seed" for _ in seed]])
    lines = ["if here() != there:", "    with device(there):", f"        return again({parameters})"]
    lines += [f"p{name} = {name}.data_ptr()" for name, _ in begins]
    if begins:
        wrong = " or ".join(f"p{name} & {ALIGNED} != {at}" for name, at in begins)
        if not any(at for _, at in begins):
            wrong = f"({' | '.join(f'p{name}' for name, _ in begins)}) & {ALIGNED}"
        wrong = " or ".join([wrong, *(f"p{name} != p{other}" for name, other in twice)])
        lines += [f"if {wrong}:", "    return missed"]
    lines += [f"r{at} = {_made(tensors, one, f'r{at}', known)}" for at, one in enumerate(results)]
    for at, (one, zero) in enumerate(made):
        lines.append(f"s{at} = {_zeros(one, f's{at}', known) if zero else _made(tensors, one, f's{at}', known)}")
    lines += ["stream = stream_of(there)", *(f"p{name} = {name}.data_ptr()" for _, name in held if name[0] != "t")]
    for at, launch in enumerate(own):
        known[f"run{at}"], passed = launch.run, []
        for number, one in enumerate((*launch.before, *launch.arguments)):
            if one is STREAM:
                passed.append("stream")
            elif isinstance(one, Seed) and one.value in seed:
                passed.append("seed")
            elif not isinstance(one, Tensor):
                known[constant := f"c{at}_{number}"] = one.value if isinstance(one, Seed) else one
                passed.append(constant)
            elif name := first.get(one.data_ptr()):
                passed.append(f"p{name}")
            else:
                return None
        lines.append(f"run{at}({', '.join(passed)})")
    given = "r0" if isinstance(result, Tensor) else f"({_given(results, 'r')},)" if results else "None"
    lines.append(f"return {given}")
    return _written(f"again({parameters})", lines, known)


def _given(tensors: Sequence[Tensor], letter: str = "t") -> str:
    return ", ".join(f"{letter}{at}" for at in range(len(tensors)))


def _made(tensors: Sequence[Tensor], result: Tensor, name: str, known: dict[str, Any]) -> str:
    """An expression that allocates one that lies as the result did; the quickest is one that lies as what is given."""
    lies = tuple(result.shape), result.stride()
    for at, given in enumerate(tensors):
        like = torch.empty_like(given, device="meta")
        if (tuple(like.shape), like.stride(), like.dtype, given.device) == (*lies, result.dtype, result.device):
            return f"like(t{at})"
    known |= {f"lies_{name}": lies, f"kind_{name}": {"dtype": result.dtype, "device": result.device}}
    return f"strided(*lies_{name}, **kind_{name})"


def _zeros(made: Tensor, name: str, known: dict[str, Any]) -> str:
    known[f"kind_{name}"] = {"size": tuple(made.shape), "dtype": made.dtype, "device": made.device}
    return f"zeros(**kind_{name})"


def call_like(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    seed_at: int | None,
    tensors: Sequence[Tensor],
    again: Callable[..., Any],
) -> Recent | None:
    """`again` on arguments that are like these, else MISSED; None where torch has no guards for tensors."""
    try:
        from torch._C._dynamo.guards import TensorGuards  # pyright: ignore

        different = list({id(one): one for one in tensors}.values())  # guards take no tensor twice
        sizes, strides = [list(one.shape) for one in different], [list(one.stride()) for one in different]
        about: dict[str, Any] = {"dynamic_dims_sizes": sizes, "dynamic_dims_strides": strides}
        check = TensorGuards(*different, **about).check
    except (ImportError, TypeError):
        return None
    known: dict[str, Any] = {"check": check, "again": again, "missed": MISSED, "asks": torch.is_grad_enabled}
    known["short"] = is_short
    names = ["seed" if at == seed_at else f"a{at}" for at in range(len(args))]
    lines = [f"if len(args) != {len(args)} or len(kwargs) != {len(kwargs)}:", "    return missed"]
    lines += [f"({', '.join(names)},) = args"] if names else []
    for name in kwargs:
        names.append("seed" if name == "seed" and seed_at is not None else f"k_{name}")
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
    given += [name for name in names if name == "seed"]
    lines += [f"if {' or '.join(unlike)}:", "    return missed", f"return again({', '.join(given)})"]
    return _written("like(args, kwargs)", lines, known)


def _written(signature: str, lines: Sequence[str], known: dict[str, Any]) -> Callable[..., Any]:
    exec(f"def {signature}:\n" + "".join(f"    {line}\n" for line in lines), known)
    return known[signature.partition("(")[0]]
