"""One run of the reference: its outputs, mutated inputs and changed state."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.core.errors import ProblemError
from kernelwright.problems.problem import Args, clone_inputs, temporary_seed, tensor_leaves
from kernelwright.sandbox.exceptions import CHANGED_ARGUMENT
from kernelwright.verification.transport.result_containers import ResultContainers
from kernelwright.verification.transport.state import bitwise_equal, named_state_kinds, preserve_state
from kernelwright.verification.transport.tensor_codec import PLAIN_TYPES, to_strided

AS_TORCH_IS_SET, WIDENED = "torch", ("tf32", "bf16")
Precision = Literal["tf32", "bf16"]
"""What the user can let the operands of products be rounded to."""
_operand_precision: ContextVar[str] = ContextVar("operand_precision", default="fp32")


class ProgramResult(NamedTuple):
    """Outputs, mutated inputs and changed state of one run, in this order, with a name for each value.

    Attributes:
        mutated_inputs: indices of the mutated inputs.
        changed_state: names of the changed parameters and buffers.
        draws_random: the run used a random number generator; only where `run_program` checks it.
    """

    values: list[Tensor]
    names: list[str]
    mutated_inputs: tuple[int, ...]
    changed_state: tuple[str, ...]
    draws_random: bool = False


def run_program(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    precision_mode: AbstractContextManager[object] | None = None,
    *,
    seed: int = 0,
    watch_generators: bool = False,
) -> ProgramResult:
    """Run a program on copies of its inputs, optionally under a precision mode, and restore its state.

    Args:
        seed: of the random number generators, whose states are restored.
        watch_generators: report whether the program used one.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with preserve_state(module) as changed:
        with (
            torch.random.fork_rng(devices) if devices else nullcontext(),
            temporary_seed(seed),
            precision_mode or nullcontext(),
        ):
            before_run = _generator_states() if watch_generators else None
            result, (args, kwargs) = _call_without_grad(program, inputs)
            draws_random = watch_generators and _generator_states() != before_run
            named = [
                (path, leaf) for path, leaf in pytree.tree_flatten_with_path(result)[0] if _require_comparable(leaf)
            ]
            values = [as_tensor(leaf) for _, leaf in named]
        state = {name: value.clone() for name, value in changed().items()}
        values = [value.clone() for value in values] if state else values  # may be views of the state
    names = ["output" + pytree.keystr(path) for path, _ in named]
    before, after = tensor_leaves(inputs), tensor_leaves((args, kwargs))
    mutated = tuple(i for i, (old, new) in enumerate(zip(before, after, strict=True)) if not bitwise_equal(old, new))
    values += [as_tensor(after[i]) for i in mutated] + list(state.values())
    kinds = named_state_kinds(module)
    names += [f"input {i}" for i in mutated] + [f"{kinds[name]} {name}" for name in state]
    return ProgramResult(values, names, mutated, tuple(state), draws_random)


def _generator_states() -> list[object]:
    """The states of the generators that `temporary_seed` seeds, in a form that can be compared."""
    numpy = sys.modules.get("numpy")
    states: list[object] = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state().numpy().tobytes())
    if numpy:
        _, keys, *rest = numpy.random.get_state()
        states += [keys.tobytes(), rest]
    return states


@contextmanager
def disable_tf32() -> Iterator[None]:
    """Disable TF32 and reduced-precision paths in products and in cuDNN (on by default there), except within
    `tf32_as_set`; restored on exit."""
    if operand_precision() != "fp32":
        yield
        return
    matmul, cudnn = cast(Any, torch.backends.cuda.matmul), cast(Any, torch.backends.cudnn)
    saved = (matmul.allow_tf32, cudnn.allow_tf32)
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = saved


@contextmanager
def tf32_as_set() -> Iterator[None]:
    """Run the reference in the precision of its eager run, or in the wider one of `widened_precision`: torch lets cuDNN
    use TF32 unless the program forbids it."""
    with _set_operand_precision(AS_TORCH_IS_SET if operand_precision() == "fp32" else operand_precision()):
        yield


@contextmanager
def widened_precision(precision: Precision | None) -> Iterator[None]:
    """Let the operands of all products be rounded to TF32 or BF16; None changes nothing."""
    with _set_operand_precision(precision or operand_precision()):
        yield


@contextmanager
def _set_operand_precision(precision: str) -> Iterator[None]:
    token = _operand_precision.set(precision)
    try:
        yield
    finally:
        _operand_precision.reset(token)


def operand_precision() -> str:
    """The precision of the operands of products: `fp32`, `torch` (TF32 in cuDNN, as torch is set), `tf32` or `bf16`."""
    return _operand_precision.get()


def as_tensor(leaf: Any) -> Tensor:
    """A leaf as a strided tensor without gradient; floats become FP32."""
    if isinstance(leaf, Tensor):
        return to_strided(leaf.detach())
    return torch.tensor(leaf, dtype=torch.float32) if isinstance(leaf, float) else torch.tensor(leaf)


def _call_without_grad(program: Callable[..., Any], inputs: Args) -> tuple[Any, Args]:
    """The result, and the arguments after the call.

    Autograd is off unless an input requires gradients or the program computes gradients itself.
    """
    if not any(t.requires_grad for t in tensor_leaves(inputs)):
        try:
            with torch.no_grad():
                return _call(program, clone_inputs(inputs))
        except RuntimeError as error:
            if "grad" not in str(error):
                raise
    return _call(program, clone_inputs(inputs))


def _call(program: Callable[..., Any], arguments: Args) -> tuple[Any, Args]:
    containers = ResultContainers()
    leaves = containers.leaves(arguments)
    result = program(*arguments[0], **arguments[1])
    if containers.have_changed(arguments, leaves):
        raise ProblemError(f"the reference {CHANGED_ARGUMENT}", next="return the value, or write to memory")
    return result, arguments


def is_comparable(leaf: Any) -> bool:
    """Whether a leaf is compared by value; any other leaf is compared as part of the structure."""
    return isinstance(leaf, (Tensor, bool, int, float))


def _require_comparable(leaf: Any) -> bool:
    if not isinstance(leaf, (Tensor, *PLAIN_TYPES)):
        message = f"the reference returns a {type(leaf).__name__}, which cannot be compared"
        raise ProblemError(message, next="return tensors, numbers, and tuples, lists or dicts of these")
    return is_comparable(leaf)
