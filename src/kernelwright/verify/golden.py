"""What is right: the reference as it is, and the golden, the same program in FP64 on upcast inputs and parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args, clone_inputs, tensors
from kernelwright.verify.error import round_to_bits, shortcut_bits

T = TypeVar("T")
FP64 = "FP64"
OWN_PRECISION = "reference in its own precision"
NARROW = (torch.float32, torch.float16, torch.bfloat16)
_WIDENING_METHODS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
# Further apart than this (relative rms) the FP64 run computed something else: other random numbers, other bits.
_SAME_PROGRAM = 0.5


@dataclass
class Right:
    """The right answer for one input set.

    Attributes:
        reference: the outputs of the program as it is, then the inputs it mutated; every tensor in the tree's order.
        golden: the same values in FP64 (integers as the FP64 run gave them).
        names: what people call each of them: `output`, `output[1]`, `input 0`.
        mutated: which of `tensors(inputs)` the program changes; a candidate's copies of these follow its outputs.
        inputs: the tensors that went in, before anything was mutated.
        how: how the golden was made, for the verdict: `FP64`, or the fallback with its reason.
        one_sign: no floating input has both signs, so that rounding errors of the inputs average out in sums.
    """

    reference: list[Tensor]
    golden: list[Tensor]
    names: list[str]
    mutated: tuple[int, ...]
    inputs: list[Tensor]
    how: str
    one_sign: bool
    _rounded: Callable[[], list[Tensor]] = field(repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def rounded_inputs(self) -> list[Tensor]:
        """The golden on inputs rounded to the precision of the nearest shortcut; one more run, made when asked for."""
        return self.remember("rounded", self._rounded)

    def remember(self, key: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once for this input set: limits do not depend on the candidate."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def remembered(self, key: str) -> Any:
        """What was made under `key` before, or None."""
        return self._cache.get(key)


def right(program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args) -> Right:
    """Runs the program as it is and in FP64; `inputs` stay untouched.

    Raises:
        Exception: whatever the program raises in its own precision.
    """
    with exact_float32(), kept_state(module):
        reference, names, mutated = outputs(program, inputs)
    golden, how = _golden(program, module, inputs, reference)

    def rounded() -> list[Tensor]:
        narrowed = pytree.tree_map_only(Tensor, _round_input, inputs)
        try:
            moved = _golden(program, module, narrowed, reference, own=how != FP64)[0]
        except Exception:  # a program that cannot take the rounded inputs says nothing about their error
            return golden
        return moved if [t.shape for t in moved] == [t.shape for t in golden] else golden

    flat = [t.detach().clone() if i in mutated else t for i, t in enumerate(tensors(inputs))]
    return Right(reference, golden, names, mutated, flat, how, _one_sign(flat), rounded)


def outputs(program: Callable[..., Any], inputs: Args) -> tuple[list[Tensor], list[str], tuple[int, ...]]:
    """Runs a program on copies: its output tensors and the inputs that it mutated, names of both, which inputs."""
    # Reproducible where the program draws random numbers, and the caller's random state stays as it was.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(0)
        result, (args, kwargs) = _call(program, inputs)
    named = [(path, leaf) for path, leaf in pytree.tree_flatten_with_path(result)[0] if _counts(leaf)]
    values = [as_tensor(leaf) for _, leaf in named]
    names = ["output" + pytree.keystr(path) for path, _ in named]
    before, after = tensors(inputs), tensors((args, kwargs))
    mutated = tuple(i for i, (old, new) in enumerate(zip(before, after, strict=True)) if not _same_bits(old, new))
    return values + [after[i].detach() for i in mutated], names + [f"input {i}" for i in mutated], mutated


@contextmanager
def exact_float32() -> Iterator[None]:
    """FP32 means FP32: TF32 and its relatives off in products and in cuDNN (on by default there), restored after."""
    matmul, cudnn = cast(Any, torch.backends.cuda.matmul), cast(Any, torch.backends.cudnn)
    before = (matmul.allow_tf32, cudnn.allow_tf32)
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


@contextmanager
def kept_state(module: torch.nn.Module | None) -> Iterator[None]:
    """Buffers that a run changes (running means) are put back."""
    saved = [(b, b.clone()) for b in module.buffers()] if module is not None else []
    try:
        yield
    finally:
        for buffer, value in saved:
            if not _same_bits(buffer, value):
                buffer.data.copy_(value)


class Widened(TorchFunctionMode):
    """Every narrow floating tensor, dtype argument and cast becomes FP64, so that explicit FP32 steps do not round.

    Closures and constants are widened where they are used. In-place operations keep their target.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.view and any(isinstance(arg, torch.dtype) for arg in args):
            raise TypeError("reads the bits of its values, which have no FP64 counterpart")
        if func in _WIDENING_METHODS:
            func = torch.Tensor.double
        target = args[:1] if _in_place(func) else ()
        rest = args[len(target) :]
        rest, kwargs = pytree.tree_map(_widen, (tuple(rest), kwargs or {}))
        return func(*target, *rest, **kwargs)


def _golden(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    reference: list[Tensor],
    own: bool = False,
) -> tuple[list[Tensor], str]:
    """The FP64 outputs and how they were made; falls back on the program's own precision, and says why."""
    why = "asked for"
    if not own:
        try:
            wide = _run_wide(program, module, inputs)
            why = _mismatch(wide, reference)
            if not why:
                return wide, FP64
        except Exception as fault:  # the user's program under a dtype it may not know: anything can come out of it
            why = f"FP64 run: {type(fault).__name__}"
    with exact_float32(), kept_state(module):
        narrow = outputs(program, inputs)[0]
    return [_wide_value(t) for t in narrow], f"{OWN_PRECISION} ({why})"


def _run_wide(program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args) -> list[Tensor]:
    twin = copy.deepcopy(module).double() if module is not None else None
    if program is module:
        program = twin  # pyright: ignore[reportAssignmentType]
    elif module is not None and getattr(program, "__self__", None) is module:
        program = getattr(twin, program.__name__)
    wide = pytree.tree_map_only(Tensor, _widen, inputs)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Widened():
            return [_wide_value(t) for t in outputs(program, wide)[0]]
    finally:
        torch.set_default_dtype(default)


def _mismatch(wide: list[Tensor], reference: list[Tensor]) -> str:
    """Why these cannot be the same program's outputs; empty when they can."""
    if [t.shape for t in wide] != [t.shape for t in reference]:
        return "the FP64 run gives other shapes"
    for golden, own in zip(wide, reference, strict=True):
        if not own.dtype.is_floating_point or not own.numel():
            continue
        own = own.double()
        both = golden.isfinite() & own.isfinite()
        apart = torch.where(both, own - golden, 0.0).square().mean()
        if apart > _SAME_PROGRAM**2 * torch.where(both, golden, 0.0).square().mean() and own.numel() > 1:
            return "the FP64 run gives other values"
    return ""


def _call(program: Callable[..., Any], inputs: Args) -> tuple[Any, Args]:
    """The result and the arguments as the program left them.

    Without autograd's graph, unless an input asks for gradients or the program takes them itself.
    """
    args, kwargs = clone_inputs(inputs)
    if not any(t.requires_grad for t in tensors(inputs)):
        try:
            with torch.no_grad():
                return program(*args, **kwargs), (args, kwargs)
        except RuntimeError as fault:
            if "grad" not in str(fault):
                raise
        args, kwargs = clone_inputs(inputs)
    return program(*args, **kwargs), (args, kwargs)


def _in_place(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))


def _widen(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(torch.float64) if value.dtype in NARROW else value
    return torch.float64 if isinstance(value, torch.dtype) and value in NARROW else value


def _wide_value(value: Tensor) -> Tensor:
    if value.is_complex():
        return value.detach().to(torch.complex128)
    return value.detach().double() if value.dtype.is_floating_point else value.detach()


def _round_input(value: Tensor) -> Tensor:
    if value.dtype not in (torch.float32, torch.float64):
        return value
    return round_to_bits(value.detach().double(), shortcut_bits(value.dtype)).to(value.dtype)


def _one_sign(inputs: list[Tensor]) -> bool:
    floating = [t for t in inputs if t.dtype.is_floating_point and t.numel() > 1]
    return bool(floating) and all(bool((t >= 0).all() or (t <= 0).all()) for t in floating)


def _counts(leaf: Any) -> bool:
    return isinstance(leaf, (Tensor, bool, int, float))


def as_tensor(leaf: Any) -> Tensor:
    if isinstance(leaf, Tensor):
        return leaf.detach()
    return torch.tensor(leaf, dtype=torch.float32) if isinstance(leaf, float) else torch.tensor(leaf)


def _same_bits(old: Tensor, new: Tensor) -> bool:
    if old.shape != new.shape:
        return False
    if not old.dtype.is_floating_point and not old.is_complex():
        return torch.equal(old, new)
    return bool(((old == new) | ((old != old) & (new != new))).all())
