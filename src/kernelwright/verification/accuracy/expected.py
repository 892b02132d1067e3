"""Expected values: the reference as it is, and the golden, the same program in FP64 on upcast inputs and parameters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.problems.state import replaced_values
from kernelwright.verification.accuracy.error import (
    reduced_precision_bits,
    relative_errors,
    round_to_bits,
    significand_bits,
)
from kernelwright.verification.accuracy.fast_convolution import NoisyConvolutions
from kernelwright.verification.accuracy.fp64_mode import FP64Mode, native_precision, to_widest, widen
from kernelwright.verification.accuracy.operand_precision import RoundedOperands, permitted_rounding
from kernelwright.verification.accuracy.ranges import all_same_sign
from kernelwright.verification.outcome import ProgramResult, disable_tf32, run_program
from kernelwright.verification.transport.state import State, named_state

T = TypeVar("T")
FP64 = "FP64"
NATIVE_PRECISION = "reference in native precision"
# Above this relative rms error the FP64 run computed something else: other random numbers, other bits. Where inputs
# can be perturbed, sensitivity to rounding is checked instead, up to the error that zeros would have.
_MAX_RMS_ERROR, _MAX_RMS_ERROR_PERTURBABLE = 0.5, 1.0
# Above this error in one tile, rounding must be shown to explain it: a different epsilon could explain it too.
_MAX_TILE_ERROR = 2.0**-5
_MAX_TILE_ROUNDINGS = 8.0
# Rounding explains errors up to this factor on the effect of perturbing the inputs in reduced precision's last place;
# for narrow inputs, in their own last places.
_ROUNDING_SENSITIVITY = 8.0
_PERTURBED_BIT, _NARROW_PERTURBED_BITS = 12, 3


@dataclass
class Expected:
    """The expected values for one input set.

    Attributes:
        reference: the outputs of the program as it is, then the inputs it mutated, then the parameters and buffers
            that it changed; every tensor in the tree's order.
        golden: the same values in FP64 (integers as the FP64 run returned them).
        names: display name of each of them: `output`, `output[1]`, `input 0`, `buffer norm.running_mean`.
        mutated_inputs: indices among `tensor_leaves(inputs)` of the inputs that the program changes; a candidate's
            copies of these follow its outputs.
        initial_state: parameters and buffers that the program changes, with their values before; the candidate's
            follow last.
        inputs: the input tensors before the run.
        golden_method: how the golden was made, for the verdict: `FP64`, or the fallback with its reason.
        inputs_same_sign: no floating input has both signs, so that rounding errors of the inputs average out in sums.
        stable_outputs: names of outputs that are a stable order, so that the order of equal values is defined.
        sampling_seed: of the positions at which quantiles are measured; None for unpredictable ones.
        draws_random: the program used a random number generator.
        draw: the program's values in native precision under another seed, in the order of `reference`.
    """

    reference: list[Tensor]
    golden: list[Tensor]
    names: list[str]
    mutated_inputs: tuple[int, ...]
    initial_state: State
    inputs: list[Tensor]
    golden_method: str
    inputs_same_sign: bool
    draws_random: bool
    draw: Callable[[int], ProgramResult] = field(repr=False)
    _compute_rounded: Callable[[], list[Tensor]] = field(repr=False)
    stable_outputs: frozenset[str] = frozenset()
    _compute_convolved: Callable[[], list[Tensor]] | None = field(default=None, repr=False)
    sampling_seed: int | None = None
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def golden_of_rounded_inputs(self) -> list[Tensor]:
        """The golden on inputs rounded to reduced precision; one more run, on first use."""
        return self.get_or_compute("rounded", self._compute_rounded)

    def golden_of_fast_convolutions(self) -> list[Tensor] | None:
        """The golden with the error of FFT or Winograd convolutions; one more run, on first use. None for programs
        without a convolution."""
        compute = self._compute_convolved
        return self.get_or_compute("convolved", compute) if compute else None

    def get_or_compute(self, key: str, compute: Callable[[], T]) -> T:
        """The result of `compute`, cached for this input set: limits do not depend on the candidate."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

    def of_rows(self, rows: Tensor) -> Expected:
        """The floating outputs at these rows of their first dimension, without what the program changes."""
        floating = [at for at, t in enumerate(self.reference) if t.dtype.is_floating_point or t.is_complex()]
        return Expected(
            reference=[self.reference[at][rows] for at in floating],
            golden=[self.golden[at][rows] for at in floating],
            names=[self.names[at] for at in floating],
            mutated_inputs=(),
            initial_state={},
            inputs=[],
            golden_method=self.golden_method,
            inputs_same_sign=self.inputs_same_sign,
            draws_random=self.draws_random,
            draw=self.draw,
            _compute_convolved=self._compute_convolved and self._convolved_rows(floating, rows),
            sampling_seed=self.sampling_seed,
            _compute_rounded=lambda: [self.golden_of_rounded_inputs()[at][rows] for at in floating],
        )

    def _convolved_rows(self, floating: list[int], rows: Tensor) -> Callable[[], list[Tensor]]:
        return lambda: [(self.golden_of_fast_convolutions() or [])[at][rows] for at in floating]

    def get_cached(self, key: str) -> Any:
        """The cached value of `key`, or None."""
        return self._cache.get(key)


def compute_expected(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    changed_parameters: Callable[[], AbstractContextManager[None]] = nullcontext,
    sampling_seed: int | None = None,
    *,
    seed: int = 0,
) -> Expected:
    """Run the program as it is and in FP64; `inputs` and the module's state are not modified.

    Args:
        seed: of the random number generators in every run.
        changed_parameters: within it the module has the parameters to run with.
        sampling_seed: as in `Expected`.
    Raises:
        ProblemError: an output cannot be compared.
        Exception: any exception of the program in native precision.
    """
    with changed_parameters():
        with disable_tf32():
            precision = _permitted_precision(module, inputs)
            native = run_program(program, module, inputs, precision, seed=seed, watch_generators=True)
        mode = FP64Mode(native_precision([*tensor_leaves(inputs), *named_state(module).values()]))
        golden, golden_method = _compute_golden(program, module, inputs, native, seed, mode)
        initial_state = {
            name: value.clone() for name, value in named_state(module).items() if name in native.changed_state
        }

    def rounded() -> list[Tensor]:
        rounded_inputs = pytree.tree_map_only(Tensor, _round_input, inputs)
        try:
            with changed_parameters():
                values = _run_wide_or_native(program, module, rounded_inputs, golden_method, seed)
        except Exception:  # not measurable where the program cannot take the rounded inputs
            return golden
        return values if [t.shape for t in values] == [t.shape for t in golden] else golden

    def convolved() -> list[Tensor]:
        with changed_parameters():
            mode = NoisyConvolutions(native_precision([*tensor_leaves(inputs), *named_state(module).values()]))
            return _run_fp64(program, module, inputs, seed, mode)

    def draw(other_seed: int) -> ProgramResult:
        with changed_parameters(), disable_tf32():
            return run_program(program, module, inputs, _permitted_precision(module, inputs), seed=other_seed)

    input_tensors = [
        t.detach().clone() if i in native.mutated_inputs else t for i, t in enumerate(tensor_leaves(inputs))
    ]
    return Expected(
        native.values,
        golden,
        native.names,
        native.mutated_inputs,
        initial_state,
        input_tensors,
        golden_method,
        _inputs_have_same_sign(input_tensors),
        native.draws_random,
        draw,
        rounded,
        _compute_convolved=convolved if mode.has_convolution and golden_method == FP64 else None,
        sampling_seed=sampling_seed,
    )


def _permitted_precision(module: torch.nn.Module | None, inputs: Args) -> RoundedOperands | None:
    """The mode that rounds operands as torch or the user permits; None where neither does."""
    return permitted_rounding([*tensor_leaves(inputs), *named_state(module).values()])


def _compute_golden(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    native: ProgramResult,
    seed: int,
    mode: FP64Mode,
) -> tuple[list[Tensor], str]:
    """The FP64 outputs and how they were made; falls back on native precision, with the reason."""
    try:
        wide = _run_fp64(program, module, inputs, seed, mode)
        if not (mismatch := _find_mismatch(program, module, inputs, wide, native, seed)):
            return wide, FP64
    except Exception as error:  # the user's program may not support FP64 and can raise anything
        mismatch = f"FP64 run: {type(error).__name__}"
    golden_method = f"{NATIVE_PRECISION} ({mismatch})"
    return _run_wide_or_native(program, module, inputs, golden_method, seed), golden_method


def _run_wide_or_native(
    program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args, golden_method: str, seed: int
) -> list[Tensor]:
    if golden_method == FP64:
        return _run_fp64(program, module, inputs, seed)
    with disable_tf32():
        return [to_widest(t) for t in run_program(program, module, inputs, seed=seed).values]


def _run_fp64(
    program: Callable[..., Any], module: torch.nn.Module | None, inputs: Args, seed: int, mode: FP64Mode | None = None
) -> list[Tensor]:
    mode = mode or FP64Mode(native_precision([*tensor_leaves(inputs), *named_state(module).values()]))
    fp64_inputs = pytree.tree_map_only(Tensor, widen, inputs)
    with replaced_values(module, widen):
        return [to_widest(t) for t in run_program(program, module, fp64_inputs, mode, seed=seed).values]


def _find_mismatch(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    wide: list[Tensor],
    native: ProgramResult,
    seed: int,
) -> str:
    """The reason why these are not the same program's outputs, or an empty string."""
    reference = native.values
    if [t.shape for t in wide] != [t.shape for t in reference]:
        return "the FP64 run returns other shapes"
    floating = [at for at, value in enumerate(reference) if value.dtype.is_floating_point and value.numel()]
    errors = {at: relative_errors(wide[at], reference[at]) for at in floating}
    perturbable = any(t.dtype.is_floating_point for t in tensor_leaves(inputs))
    max_rms = _MAX_RMS_ERROR_PERTURBABLE if perturbable else _MAX_RMS_ERROR
    if any(rms > max_rms and reference[at].numel() > 1 for at, (rms, _) in errors.items()):
        return "the FP64 run returns other values"
    tiles = {at: worst for at, (_, worst) in errors.items()}
    if native.draws_random:
        # Perturbed inputs may change what is drawn, so that sensitivity does not show rounding.
        exact = [at for at in range(len(reference)) if at not in tiles]
        if any(worst > _max_tile_error(reference[at].dtype) for at, worst in tiles.items()) or any(
            not torch.equal(wide[at].to(reference[at].dtype), reference[at]) for at in exact
        ):
            return "the FP64 run draws other random numbers"
        return ""
    return _exceeds_rounding(program, module, inputs, tiles, reference) if perturbable else ""


def _exceeds_rounding(
    program: Callable[..., Any],
    module: torch.nn.Module | None,
    inputs: Args,
    tiles: dict[int, float],
    reference: list[Tensor],
) -> str:
    """The reason why the worst tiles' errors are more than rounding, or an empty string.

    A program that is sensitive to rounding is also sensitive to small changes of its inputs. One that chooses an
    epsilon by its dtype is not: its FP64 run computes something else, and that error must not widen the limits.
    """
    suspects = [at for at, worst in tiles.items() if worst > _max_tile_error(reference[at].dtype)]
    if not suspects:
        return ""
    try:
        with disable_tf32():
            values = run_program(program, module, pytree.tree_map_only(Tensor, _perturb_last_place, inputs)).values
        explained = [_ROUNDING_SENSITIVITY * relative_errors(reference[at], values[at])[1] for at in suspects]
    except Exception:  # not measurable where the program raises or returns other shapes
        return ""
    if any(tiles[at] > max_error for at, max_error in zip(suspects, explained, strict=True)):
        return "the FP64 run differs by more than rounding"
    return ""


def _max_tile_error(dtype: torch.dtype) -> float:
    return max(_MAX_TILE_ERROR, _MAX_TILE_ROUNDINGS * torch.finfo(dtype).eps)


def _perturb_last_place(value: Tensor) -> Tensor:
    """Make every second value slightly smaller, so that bounds hold."""
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
