"""What is right: the reference as it is, and the golden, the same program in FP64 on upcast inputs and parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.verification.accuracy.error import (
    reduced_precision_bits,
    relative_errors,
    round_to_bits,
    significand_bits,
)
from kernelwright.verification.accuracy.fp64_mode import FP64Mode, native_precision, to_widest, widen
from kernelwright.verification.accuracy.ranges import all_same_sign
from kernelwright.verification.outcome import disable_tf32, run_program
from kernelwright.verification.transport.state import State, named_state

T = TypeVar("T")
FP64 = "FP64"
NATIVE_PRECISION = "reference in its own precision"
# Further apart than this (relative rms) the FP64 run computed something else: other random numbers, other bits. Where
# the inputs can be moved, rounding can be asked, and only what is further off than zeros would be is beyond asking.
_MAX_RMS_DISTANCE, _MAX_RMS_DISTANCE_MOVABLE = 0.5, 1.0
# Further apart than this in one tile, rounding has to be shown to explain it: another epsilon could as well.
_MAX_TILE_ERROR = 2.0**-5
_MAX_TILE_ROUNDINGS = 8.0
# Rounding explains what is at most so many times what moving the inputs in a shortcut's last place does; of narrow
# inputs, in the last places that they have.
_ROUNDING_SENSITIVITY = 8.0
_PERTURBED_BIT, _NARROW_PERTURBED_BITS = 12, 3


@dataclass
class Expected:
    """The right answer for one input set.

    Attributes:
        reference: the outputs of the program as it is, then the inputs it mutated, then the parameters and buffers
            that it changed; every tensor in the tree's order.
        golden: the same values in FP64 (integers as the FP64 run gave them).
        names: what people call each of them: `output`, `output[1]`, `input 0`, `buffer norm.running_mean`.
        mutated_inputs: which of `tensors(inputs)` the program changes; a candidate's copies of these follow its
            outputs.
        initial_state: which parameters and buffers it changes, with their values before; the candidate's follow last.
        inputs: the tensors that went in, before anything was mutated.
        golden_method: how the golden was made, for the verdict: `FP64`, or the fallback with its reason.
        inputs_same_sign: no floating input has both signs, so that rounding errors of the inputs average out in sums.
    """

    reference: list[Tensor]
    golden: list[Tensor]
    names: list[str]
    mutated_inputs: tuple[int, ...]
    initial_state: State
    inputs: list[Tensor]
    golden_method: str
    inputs_same_sign: bool
    _compute_rounded: Callable[[], list[Tensor]] = field(repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def golden_of_rounded_inputs(self) -> list[Tensor]:
        """The golden on inputs rounded to the precision of the nearest shortcut; one more run, made when asked for."""
        return self.get_or_compute("rounded", self._compute_rounded)

    def get_or_compute(self, key: str, compute: Callable[[], T]) -> T:
        """What `compute` gives, made once for this input set: limits do not depend on the candidate."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

    def get_cached(self, key: str) -> Any:
        """What was made under `key` before, or None."""
        return self._cache.get(key)


def compute_expected(program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args) -> Expected:
    """Runs the program as it is and in FP64; `inputs` and the module's state stay untouched.

    Raises:
        ProblemError: an output that cannot be compared.
        Exception: whatever the program raises in its own precision.
    """
    with disable_tf32():
        own = run_program(program, module, inputs)
    golden, how = _compute_golden(program, module, inputs, own.values)

    def rounded() -> list[Tensor]:
        narrowed = pytree.tree_map_only(Tensor, _round_input, inputs)
        try:
            moved = _run_wide_or_native(program, module, narrowed, how)
        except Exception:  # a program that cannot take the rounded inputs says nothing about their error
            return golden
        return moved if [t.shape for t in moved] == [t.shape for t in golden] else golden

    flat = [t.detach().clone() if i in own.mutated_inputs else t for i, t in enumerate(tensor_leaves(inputs))]
    before = {name: value.clone() for name, value in named_state(module).items() if name in own.changed_state}
    return Expected(
        own.values, golden, own.names, own.mutated_inputs, before, flat, how, _inputs_have_same_sign(flat), rounded
    )


def _compute_golden(
    program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args, reference: list[Tensor]
) -> tuple[list[Tensor], str]:
    """The FP64 outputs and how they were made; falls back on the program's own precision, and says why."""
    try:
        wide = _run_fp64(program, module, inputs)
        if not (why := _find_mismatch(program, module, inputs, wide, reference)):
            return wide, FP64
    except Exception as fault:  # the user's program under a dtype it may not know: anything can come out of it
        why = f"FP64 run: {type(fault).__name__}"
    how = f"{NATIVE_PRECISION} ({why})"
    return _run_wide_or_native(program, module, inputs, how), how


def _run_wide_or_native(
    program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args, golden_method: str
) -> list[Tensor]:
    if golden_method == FP64:
        return _run_fp64(program, module, inputs)
    with disable_tf32():
        return [to_widest(t) for t in run_program(program, module, inputs).values]


def _run_fp64(program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args) -> list[Tensor]:
    twin = copy.deepcopy(module).double() if module is not None else None
    if program is module:
        program = twin  # pyright: ignore[reportAssignmentType]
    elif module is not None and getattr(program, "__self__", None) is module:
        program = getattr(twin, program.__name__)
    own = native_precision([*tensor_leaves(inputs), *named_state(module).values()])
    wide = pytree.tree_map_only(Tensor, widen, inputs)
    return [to_widest(t) for t in run_program(program, twin, wide, FP64Mode(own)).values]


def _find_mismatch(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    wide: list[Tensor],
    reference: list[Tensor],
) -> str:
    """Why these cannot be the same program's outputs; empty when they can."""
    if [t.shape for t in wide] != [t.shape for t in reference]:
        return "the FP64 run gives other shapes"
    floating = [at for at, own in enumerate(reference) if own.dtype.is_floating_point and own.numel()]
    distances = {at: relative_errors(wide[at], reference[at]) for at in floating}
    movable = any(t.dtype.is_floating_point for t in tensor_leaves(inputs))
    most = _MAX_RMS_DISTANCE_MOVABLE if movable else _MAX_RMS_DISTANCE
    if any(rms > most and reference[at].numel() > 1 for at, (rms, _) in distances.items()):
        return "the FP64 run gives other values"
    tiles = {at: worst for at, (_, worst) in distances.items()}
    return _exceeds_rounding(program, module, inputs, tiles, reference) if movable else ""


def _exceeds_rounding(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    tiles: dict[int, float],
    reference: list[Tensor],
) -> str:
    """Why the worst tiles' distances are more than rounding; empty where they are small or rounding explains them.

    A program that is that sensitive to rounding is sensitive to small changes of its inputs too. One that chooses an
    epsilon by its dtype is not: there the FP64 run computes something else, and its distance must excuse nobody.
    """
    suspects = [at for at, worst in tiles.items() if worst > _max_tile_error(reference[at].dtype)]
    if not suspects:
        return ""
    try:
        with disable_tf32():
            values = run_program(program, module, pytree.tree_map_only(Tensor, _perturb_last_place, inputs)).values
        explained = [_ROUNDING_SENSITIVITY * relative_errors(reference[at], values[at])[1] for at in suspects]
    except Exception:  # a program that gives other shapes, or nothing, for such inputs says nothing about its rounding
        return ""
    if any(tiles[at] > most for at, most in zip(suspects, explained, strict=True)):
        return "the FP64 run is further off than rounding explains"
    return ""


def _max_tile_error(dtype: torch.dtype) -> float:
    return max(_MAX_TILE_ERROR, _MAX_TILE_ROUNDINGS * torch.finfo(dtype).eps)


def _perturb_last_place(value: Tensor) -> Tensor:
    """Every second value a little smaller, so that bounds hold."""
    if not value.dtype.is_floating_point or value.dtype.itemsize < 2:
        return value
    step = 2.0 ** -min(_PERTURBED_BIT, significand_bits(value.dtype) - _NARROW_PERTURBED_BITS)
    chosen = torch.arange(value.numel(), device=value.device).view(value.shape) % 2 == 0
    return torch.where(chosen, value * (1 - step), value).detach().requires_grad_(value.requires_grad)


def _round_input(value: Tensor) -> Tensor:
    if value.dtype not in (torch.float32, torch.float64):
        return value
    return round_to_bits(value.detach().double(), reduced_precision_bits(value.dtype)).to(value.dtype)


def _inputs_have_same_sign(inputs: list[Tensor]) -> bool:
    floating = [t for t in inputs if t.dtype.is_floating_point and t.numel() > 1]
    return bool(floating) and all(map(all_same_sign, floating))
