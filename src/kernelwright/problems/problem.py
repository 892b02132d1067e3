"""The two things that everything else is about: a problem and a candidate."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

Args = tuple[list[Any], dict[str, Any]]


@dataclass(frozen=True)
class Problem:
    """A reference program with its inputs.

    Attributes:
        name: what people call it.
        program: the callable that defines right: an nn.Module or a function.
        make_inputs: new example inputs as (args, kwargs), drawn from torch's current random state, on the CPU.
        source: the file or `module:function` it came from, None for live Python objects.
        text: the program in one line, for the head of a report.
        deterministic: a candidate must give the same bits twice.
        module: the nn.Module behind `program`, whose parameters a candidate receives by name.
    """

    name: str
    program: Callable[..., Any]
    make_inputs: Callable[[], Args]
    source: str | None = None
    text: str = ""
    deterministic: bool = False
    module: torch.nn.Module | None = None
    init_inputs: tuple[Any, ...] = ()

    @classmethod
    def from_callable(cls, fn: Callable[..., Any], *args: Any, name: str = "", **kwargs: Any) -> Problem:
        """A problem from a function (or module) and example arguments; every run gets its own copy of them."""
        module = fn if isinstance(fn, torch.nn.Module) else None
        name = name or getattr(fn, "__name__", type(fn).__name__)
        return cls(name, fn, lambda: clone_inputs((list(args), kwargs)), None, one_line(fn), module=module)

    @classmethod
    def from_module(cls, model: torch.nn.Module, *args: Any, **kwargs: Any) -> Problem:
        """A problem from a module and example arguments."""
        return cls.from_callable(model, *args, **kwargs)

    def inputs(self, device: str, seed: int) -> Args:
        """Inputs drawn with `seed`, on `device`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return to_device(self.make_inputs(), device)

    def on(self, device: str) -> Callable[..., Any]:
        """The program with its parameters on `device`; a copy where they have to move."""
        if self.module is None or device == "cpu":
            return self.program
        return copy.deepcopy(self.module).to(device)


@dataclass(frozen=True)
class Candidate:
    """Code that claims to compute the same as a problem: `program` takes the same arguments."""

    name: str
    program: Callable[..., Any]
    source: str | None = None
    language: str = "python"
    notes: tuple[str, ...] = field(default=())


def clone_inputs(inputs: Any) -> Any:
    """The same tree with every tensor copied, strides, dtype and requires_grad kept, shared storages kept shared."""
    return copy.deepcopy(pytree.tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), inputs))


def to_device(inputs: Any, device: str) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), inputs)


def tensors(tree: Any) -> list[torch.Tensor]:
    """Every tensor of a tree, in its order."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def one_line(fn: Callable[..., Any]) -> str:
    """The returned expression of a function or forward(), when its source says it in one line; else empty."""
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        lines = [line.strip() for line in inspect.getsource(target).splitlines()]
    except (OSError, TypeError):
        return ""
    returns = [line.removeprefix("return ") for line in lines if line.startswith("return ")]
    return returns[0] if len(returns) == 1 and len(returns[0]) <= 80 else ""


def stem(source: str) -> str:
    """`examples/softmax.py:f` -> `softmax`."""
    return Path(source.partition(":")[0]).stem
