"""How far what a call gave is from the reference's own numbers: who is near need not be judged.

One run of the reference tells, where a judgement takes several and FP64. Who is far is judged, and not yet wrong.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.verification.accuracy.ranges import all_finite, iter_chunks, max_abs
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.outcome import ProgramResult, as_tensor, is_comparable
from kernelwright.verification.transport.state import bitwise_equal

PRESCREEN_LIMITS_EPS = {2: (0.125, 1.0), 4: (32.0, 256.0), 8: (32.0, 256.0)}
"""By the bytes of a number, in its dtype's eps: rms over the reference's rms, largest over its largest. What FP32 loses
by half-precision arithmetic is hundreds of times more; in 16 bits it is a rounding or two of the output's own."""


def prescreen_distance(observed: ObservedCall, inputs: Args, reference_result: ProgramResult | None) -> float:
    """How far all that the reference returned or changed for these inputs is from what was observed, in what is near:
    up to 1 it is. Infinite where something else was given, or besides.

    Args:
        reference_result: of the reference; None where it raised.
    """
    if reference_result is None or observed.out_of_bounds_inputs or not observed.complete_on_return:
        return math.inf
    given = _values_in_reference_order(observed, inputs, reference_result)
    return math.inf if given is None else max(map(_tensor_distance, given, reference_result.values), default=0.0)


def _values_in_reference_order(
    observed: ObservedCall, inputs: Args, reference_result: ProgramResult
) -> list[Tensor] | None:
    """What was observed in the order of the outcome's values; None where it is something else that was given."""
    returned = {f"output{path}": leaf for path, leaf in observed.leaves.items() if is_comparable(leaf)}
    names = reference_result.names[
        : len(reference_result.names) - len(reference_result.mutated_inputs) - len(reference_result.changed_state)
    ]
    same = returned.keys() == set(names) and observed.mutated_inputs.keys() <= set(reference_result.mutated_inputs)
    if not same or observed.changed_state.keys() != set(reference_result.changed_state):
        return None
    before = tensor_leaves(inputs)
    changed = [observed.mutated_inputs.get(at, before[at].detach()) for at in reference_result.mutated_inputs]
    return [
        *(as_tensor(returned[name]) for name in names),
        *changed,
        *(observed.changed_state[name] for name in reference_result.changed_state),
    ]


def _tensor_distance(got: Tensor, own: Tensor) -> float:
    if bitwise_equal(got, own):
        return 0.0
    limits = PRESCREEN_LIMITS_EPS.get(got.dtype.itemsize) if got.dtype.is_floating_point else None
    if limits is None or (got.shape, got.dtype, got.device) != (own.shape, own.dtype, own.device):
        return math.inf
    if not (all_finite(got) and all_finite(own)):
        return math.inf
    got, own, eps = got.flatten(), own.flatten(), torch.finfo(got.dtype).eps
    squares, own_squares, largest = 0.0, 0.0, 0.0
    for part in iter_chunks(own):
        apart = got[part] - own[part]
        squares += _squared_norm(apart)
        own_squares += _squared_norm(own[part])
        largest = max(largest, max_abs(apart))
    of_rms, of_largest = limits
    return max(
        _ratio_or_inf(squares**0.5, of_rms * eps * own_squares**0.5),
        _ratio_or_inf(largest, of_largest * eps * max_abs(own)),
    )


def _ratio_or_inf(of: float, limit: float) -> float:
    return of / limit if limit else math.inf


def _squared_norm(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value, dtype=torch.float64)) ** 2
