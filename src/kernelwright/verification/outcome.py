"""One run of the reference: what it returns, and what it leaves in its inputs and in its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.core.errors import ProblemError
from kernelwright.problems.problem import Args, clone_inputs, tensor_leaves
from kernelwright.verification.transport.state import bitwise_equal, named_state_kinds, preserve_state
from kernelwright.verification.transport.tensor_codec import PLAIN_TYPES, to_strided


class ProgramResult(NamedTuple):
    """What one run gave: its output tensors, the inputs that it mutated and the state that it changed, names of all,
    which inputs, which state."""

    values: list[Tensor]
    names: list[str]
    mutated_inputs: tuple[int, ...]
    changed_state: tuple[str, ...]


def run_program(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    precision_mode: AbstractContextManager[object] | None = None,
) -> ProgramResult:
    """Runs a program on copies, in another precision where one is given, and puts its state back."""
    # Reproducible where the program draws random numbers, and the caller's random state stays as it was.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with preserve_state(module) as changed:
        with torch.random.fork_rng(devices), precision_mode or nullcontext():
            torch.manual_seed(0)
            result, (args, kwargs) = _call_without_grad(program, inputs)
            named = [
                (path, leaf) for path, leaf in pytree.tree_flatten_with_path(result)[0] if _require_comparable(leaf)
            ]
            values = [as_tensor(leaf) for _, leaf in named]
        state = {name: value.clone() for name, value in changed().items()}
        values = [value.clone() for value in values] if state else values  # perhaps views of it
    names = ["output" + pytree.keystr(path) for path, _ in named]
    before, after = tensor_leaves(inputs), tensor_leaves((args, kwargs))
    mutated = tuple(i for i, (old, new) in enumerate(zip(before, after, strict=True)) if not bitwise_equal(old, new))
    values += [as_tensor(after[i]) for i in mutated] + list(state.values())
    kinds = named_state_kinds(module)
    names += [f"input {i}" for i in mutated] + [f"{kinds[name]} {name}" for name in state]
    return ProgramResult(values, names, mutated, tuple(state))


@contextmanager
def disable_tf32() -> Iterator[None]:
    """FP32 means FP32: TF32 and its relatives off in products and in cuDNN (on by default there), restored after."""
    matmul, cudnn = cast(Any, torch.backends.cuda.matmul), cast(Any, torch.backends.cudnn)
    before = (matmul.allow_tf32, cudnn.allow_tf32)
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def as_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return to_strided(leaf.detach())
    return torch.tensor(leaf, dtype=torch.float32) if isinstance(leaf, float) else torch.tensor(leaf)


def _call_without_grad(program: Callable[..., Any], inputs: Args) -> tuple[Any, Args]:
    """The result and the arguments as the program left them.

    Without autograd's graph, unless an input asks for gradients or the program takes them itself.
    """
    args, kwargs = clone_inputs(inputs)
    if not any(t.requires_grad for t in tensor_leaves(inputs)):
        try:
            with torch.no_grad():
                return program(*args, **kwargs), (args, kwargs)
        except RuntimeError as fault:
            if "grad" not in str(fault):
                raise
        args, kwargs = clone_inputs(inputs)
    return program(*args, **kwargs), (args, kwargs)


def is_comparable(leaf: Any) -> bool:
    """Whether a leaf of a result is compared by value; the structure in words holds the others."""
    return isinstance(leaf, (Tensor, bool, int, float))


def _require_comparable(leaf: Any) -> bool:
    if not isinstance(leaf, (Tensor, *PLAIN_TYPES)):
        message = f"the reference returns a {type(leaf).__name__}, which cannot be compared"
        raise ProblemError(message, next="return tensors, numbers, and tuples, lists or dicts of these")
    return is_comparable(leaf)
