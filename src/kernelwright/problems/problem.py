"""The two central types: a problem and a candidate."""

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
from kernelwright.problems.device_inputs import Args, draw_inputs_on
from kernelwright.problems.mkl_warmup import warm_up_mkl

MODEL_SEED = 0
MAX_EXPRESSION_WIDTH = 80


@dataclass(frozen=True)
class Problem:
    """A reference program with its inputs.

    Attributes:
        name: name in reports.
        program: the callable that defines the correct result: an nn.Module or a function.
        make_inputs: returns new example inputs as (args, kwargs) on the CPU, sampled from torch's current random state.
        source: the file or `module:function` it was loaded from, None for in-process objects.
        summary: the program in one line, for the head of a report.
        deterministic: candidates must be bitwise reproducible.
        module: the nn.Module behind `program`, whose parameters a candidate receives by name.
        init_inputs: constructor arguments of `Model`, also used for `ModelNew`.
    """

    name: str
    program: Callable[..., Any]
    make_inputs: Callable[[], Args]
    source: str | None = None
    summary: str = ""
    deterministic: bool = False
    module: torch.nn.Module | None = None
    init_inputs: tuple[Any, ...] = ()
    _generators: dict[str, Callable[[], Args]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        warm_up_mkl()

    @classmethod
    def from_callable(cls, fn: Callable[..., Any], *args: Any, name: str = "", **kwargs: Any) -> Problem:
        """A problem from a function or module and example arguments, which are copied for every run."""
        module = fn if isinstance(fn, torch.nn.Module) else None
        name = name or getattr(fn, "__name__", type(fn).__name__)
        return cls(name, fn, lambda: clone_inputs((list(args), kwargs)), None, one_line_expression(fn), module=module)

    @classmethod
    def from_module(cls, model: torch.nn.Module, *args: Any, **kwargs: Any) -> Problem:
        """A problem from a module and example arguments."""
        return cls.from_callable(model, *args, **kwargs)

    def inputs(self, device: str, seed: int) -> Args:
        """Inputs sampled with `seed`, on `device`."""
        draw = self.input_generator(device)
        with temporary_seed(seed):
            return to_device(draw(), device)

    def input_generator(self, device: str) -> Callable[[], Args]:
        """`make_inputs` on `device` where it can run there, which saves a second for each gigabyte of a call."""
        if device not in self._generators:
            with temporary_seed(0):
                self._generators[device] = draw_inputs_on(device, self.make_inputs)
        return self._generators[device]

    @functools.cached_property
    def meta_inputs(self) -> Args:
        """Inputs with shapes, strides and dtypes but without values, for checks before anything runs."""
        return self.inputs("meta", 0)

    def needs_grad(self, inputs: Args) -> bool:
        """Whether to run with gradients: an input requires them, or an in-process caller has them enabled."""
        needs_grad = any(tensor.requires_grad for tensor in tensor_leaves(inputs))
        return needs_grad or (self.source is None and torch.is_grad_enabled())

    @contextlib.contextmanager
    def restore_buffers(self) -> Iterator[None]:
        """Restore the buffers of the module (running statistics, caches) after the block."""
        owners = list(self.module.modules()) if self.module is not None else []
        before = [
            (owner, name, buffer.detach().clone())
            for owner in owners
            for name, buffer in owner._buffers.items()
            if buffer is not None
        ]
        try:
            yield
        finally:
            with torch.no_grad():
                for owner, name, value in before:  # by name: a move to another device replaces buffers
                    buffer = owner._buffers.get(name)
                    # the version counter is no help: batch norm does not bump it
                    if buffer is not None and not torch.equal(buffer, value.to(buffer.device)):
                        buffer.copy_(value)

    def program_on(self, device: str) -> Callable[..., Any]:
        """The program with its parameters on `device`.

        A module from a file is moved in place: a copy would leave behind what closures and hooks hold. A module of the
        caller's on another device is copied.
        """
        if self.module is None or all(tensor.device.type == device for tensor in _state_tensors(self.module)):
            return self.program
        if self.source is None and device != "cpu":
            return copy.deepcopy(self.module).to(device)
        self.module.to(device)
        return self.program


@dataclass(frozen=True)
class Candidate:
    """Code meant to compute the same as a problem; `program` accepts the same arguments."""

    name: str
    program: Callable[..., Any]
    source: str | None = None
    language: str = "python"
    notes: tuple[str, ...] = field(default=())


@contextlib.contextmanager
def temporary_seed(seed: int) -> Iterator[None]:
    """Seed torch, `random`, and NumPy if it is loaded, and restore their states afterwards."""
    numpy = sys.modules.get("numpy")
    python_state, numpy_state = random.getstate(), numpy.random.get_state() if numpy else None
    with torch.random.fork_rng(devices=[]):
        if torch.cuda.is_available():
            torch.manual_seed(seed)
        seed_on_host(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            if numpy:
                numpy.random.set_state(numpy_state)


def seed_on_host(seed: int) -> None:
    """Seed the generators of the host: torch, `random`, and NumPy if it is loaded.

    Without a device, torch.manual_seed takes 0.5 ms: it records a stack trace for each later device.
    """
    _seed_torch(seed)
    _seed_python(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)


_seed_torch, _seed_python = torch.default_generator.manual_seed, random.seed
"""As they are before any program is loaded."""


def _state_tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()


def to_device(inputs: Any, device: str) -> Any:
    """Move all tensors of a tree to a device."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), inputs)


def one_line_expression(fn: Callable[..., Any]) -> str:
    """The expression that a function or forward() returns, if it consists of that alone and fits in a line; else ""."""
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
