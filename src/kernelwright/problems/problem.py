"""The two things that everything else is about: a problem and a candidate."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import random
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.core.pytree import clone_inputs, tensor_leaves
from kernelwright.problems.mkl_warmup import warm_up_mkl

Args = tuple[list[Any], dict[str, Any]]
MODEL_SEED = 0
MAX_EXPRESSION_WIDTH = 80


@dataclass(frozen=True)
class Problem:
    """A reference program with its inputs.

    Attributes:
        name: what people call it.
        program: the callable that defines right: an nn.Module or a function.
        make_inputs: new example inputs as (args, kwargs), drawn from torch's current random state, on the CPU.
        source: the file or `module:function` it came from, None for live Python objects.
        summary: the program in one line, for the head of a report.
        deterministic: a candidate must give the same bits twice.
        module: the nn.Module behind `program`, whose parameters a candidate receives by name.
        init_inputs: what `Model` was constructed with, and what `ModelNew` will be.
    """

    name: str
    program: Callable[..., Any]
    make_inputs: Callable[[], Args]
    source: str | None = None
    summary: str = ""
    deterministic: bool = False
    module: torch.nn.Module | None = None
    init_inputs: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        warm_up_mkl()

    @classmethod
    def from_callable(cls, fn: Callable[..., Any], *args: Any, name: str = "", **kwargs: Any) -> Problem:
        """A problem from a function (or module) and example arguments; every run gets its own copy of them."""
        module = fn if isinstance(fn, torch.nn.Module) else None
        name = name or getattr(fn, "__name__", type(fn).__name__)
        return cls(name, fn, lambda: clone_inputs((list(args), kwargs)), None, one_line_expression(fn), module=module)

    @classmethod
    def from_module(cls, model: torch.nn.Module, *args: Any, **kwargs: Any) -> Problem:
        """A problem from a module and example arguments."""
        return cls.from_callable(model, *args, **kwargs)

    def inputs(self, device: str, seed: int) -> Args:
        """Inputs drawn with `seed`, on `device`."""
        with temporary_seed(seed):
            return to_device(self.make_inputs(), device)

    @functools.cached_property
    def meta_inputs(self) -> Args:
        """Inputs whose tensors have shape, strides and dtype but no values, for checks before anything runs."""
        return to_device(self.inputs("cpu", 0), "meta")

    def needs_grad(self, inputs: Args) -> bool:
        """Whether the program is to run with gradients: an input asks for them, or a live caller has them on."""
        asked = any(tensor.requires_grad for tensor in tensor_leaves(inputs))
        return asked or (self.source is None and torch.is_grad_enabled())

    @contextlib.contextmanager
    def restore_buffers(self) -> Iterator[None]:
        """Puts the buffers of a live module back afterwards (running statistics, caches): it is somebody's."""
        buffers = list(self.module.buffers()) if self.module is not None and self.source is None else []
        before = [(buffer, buffer.detach().clone()) for buffer in buffers]
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in before:
                    if not torch.equal(buffer, value):  # its version says nothing: batch norm does not count it
                        buffer.copy_(value)

    def program_on(self, device: str) -> Callable[..., Any]:
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


@contextlib.contextmanager
def temporary_seed(seed: int) -> Iterator[None]:
    """Seeds torch, `random`, and NumPy where it is loaded; all of them are put back afterwards."""
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy:
                numpy.random.set_state(numpy_state)


def to_device(inputs: Any, device: str) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), inputs)


def one_line_expression(fn: Callable[..., Any]) -> str:
    """The expression that a function or forward() is, when it is only one that fits in a line; else empty."""
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(target))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return ""
    body = [node for node in getattr(tree, "body", []) if not _is_docstring(node)]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return ""
    text = re.sub(r"\b(torch\.nn\.functional|nn\.functional|torch|F|self)\.(?=[a-z])", "", ast.unparse(body[0].value))
    return text if len(text) <= MAX_EXPRESSION_WIDTH else ""


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def source_stem(source: str) -> str:
    """`examples/softmax.py:f` -> `softmax`."""
    return Path(source.partition(":")[0]).stem
