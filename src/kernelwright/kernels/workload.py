"""What a member of the library is measured on: inputs, and everybody's program for the same work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from kernelwright.core.library import EAGER, OURS
from kernelwright.core.records import Work

__all__ = ["EACH_WAY", "EAGER", "OURS", "Direction", "Program", "Workload", "gradients", "installed", "normal", "over"]

Direction = Literal["forward", "backward", "both"]
EACH_WAY: tuple[Direction, ...] = ("forward", "backward")
Program = Callable[..., Any]


@dataclass(frozen=True)
class Workload:
    """
    Attributes:
        kernel: its name in the catalog.
        what: which of its uses, a direction where it has one of each.
        direction: what is timed: the results, the gradients of results that are there, or both.
        inputs: drawn anew on the GPU at each call; those that want gradients say so.
        programs: of the inputs, by name: `kernelwright`, `eager`, and the peers that are installed.
        reference: the same in FP64, of inputs in FP64; None where results are random.
        work: bytes that must pass.
    """

    kernel: str
    what: str
    size: tuple[int, ...]
    direction: Direction
    inputs: Callable[[], tuple[Tensor, ...]]
    programs: Mapping[str, Program]
    reference: Program | None
    work: Work


def over(
    shapes: Iterable[tuple[int, ...]],
    *,
    kernel: str,
    what: str,
    direction: Direction,
    programs: Mapping[str, Program],
    reference: Program | None,
    inputs: Callable[..., tuple[Tensor, ...]],
    work: Callable[..., Work],
) -> Iterator[Workload]:
    """One use of a kernel on every shape: `work` is of a shape, `inputs` of that and of whether they want gradients."""
    for size in shapes:
        yield Workload(
            kernel=kernel,
            what=what,
            size=size,
            direction=direction,
            inputs=partial(inputs, *size, direction != "forward"),
            programs=programs,
            reference=reference,
            work=work(*size),
        )


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype).requires_grad_(grad)


def installed(**peers: tuple[str, Callable[[Any], Program]]) -> dict[str, Program]:
    """Peers' programs by name, of those that are installed: where a function is, `module:name`, and how it is called
    here."""
    found: dict[str, Program] = {}
    for name, (path, called) in peers.items():
        module, _, function = path.partition(":")
        try:
            found[name] = called(getattr(import_module(module), function))
        except Exception:  # of whatever kind: a peer that cannot be imported here is not installed here
            continue
    return found


def gradients(inputs: Iterable[Tensor], results: Any) -> Callable[[], tuple[Tensor, ...]]:
    """A call that gives the gradients of results, each as if the next layers had given it values of its own size."""
    outputs = [one for one in (results if isinstance(results, tuple) else (results,)) if one.requires_grad]
    wanted = [one for one in inputs if one.requires_grad]
    device = outputs[0].device
    draw = torch.Generator(device).manual_seed(0)
    given = [torch.randn(one.shape, device=device, generator=draw).bfloat16().to(one.dtype) for one in outputs]
    return lambda: torch.autograd.grad(outputs, wanted, given, retain_graph=True)
