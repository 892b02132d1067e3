"""Prescreen of a timed call: outputs close to the reference's own need no full check.

It takes one run of the reference, where a full check takes several and FP64. An output that is not close is checked,
not rejected.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.verification.accuracy.error import MIN_ELEMENT_SCALE
from kernelwright.verification.accuracy.golden_scale import choose_group_size, max_consecutive
from kernelwright.verification.accuracy.ranges import all_finite, iter_chunks, max_abs
from kernelwright.verification.execution import ObservedCall
from kernelwright.verification.outcome import ProgramResult, as_tensor, is_comparable
from kernelwright.verification.transport.state import bitwise_equal

PRESCREEN_LIMITS_EPS = {2: (0.125, 1.0), 4: (32.0, 256.0), 8: (32.0, 256.0)}
"""By item size in bytes, in eps of the dtype: rms error over the reference's rms, and the largest error in each group
(a row, or a part of one) over the reference's largest value there. Half-precision arithmetic in an FP32 program loses
hundreds of times more; in 16 bits the limit is one or two roundings of the output."""


def prescreen_distance(observed: ObservedCall, inputs: Args, reference_result: ProgramResult | None) -> float:
    """Largest distance of the observed outputs and changes from the reference's, relative to `PRESCREEN_LIMITS_EPS`:
    up to 1 is close. Infinite where outputs are missing, or where other inputs or state changed.

    Args:
        reference_result: result of the reference; None where it raised.
    """
    if reference_result is None or observed.out_of_bounds_inputs or not observed.complete_on_return:
        return math.inf
    values = _values_in_reference_order(observed, inputs, reference_result)
    return math.inf if values is None else max(map(_tensor_distance, values, reference_result.values), default=0.0)


def _values_in_reference_order(
    observed: ObservedCall, inputs: Args, reference_result: ProgramResult
) -> list[Tensor] | None:
    """The observed values in the order of the reference's; None where they are not the same outputs and changes."""
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


def _tensor_distance(got: Tensor, expected: Tensor) -> float:
    if bitwise_equal(got, expected):
        return 0.0
    limits = PRESCREEN_LIMITS_EPS.get(got.dtype.itemsize) if got.dtype.is_floating_point else None
    if limits is None or (got.shape, got.dtype, got.device) != (expected.shape, expected.dtype, expected.device):
        return math.inf
    if not (all_finite(got) and all_finite(expected)):
        return math.inf
    got, flat, eps = got.flatten(), expected.flatten(), torch.finfo(got.dtype).eps
    size = choose_group_size(flat.numel(), expected.shape)
    floor = MIN_ELEMENT_SCALE * max_abs(flat)
    rms_limit, max_limit = limits
    squares, expected_squares, largest = 0.0, 0.0, 0.0
    for part in iter_chunks(flat, size):
        difference = got[part] - flat[part]
        squares += _squared_norm(difference)
        expected_squares += _squared_norm(flat[part])
        peaks = max_consecutive(flat[part].abs(), size).double().clamp_min_(floor)
        errors = max_consecutive(difference.abs_(), size).double()
        largest = max(largest, torch.where(errors == 0, 0.0, errors / peaks).max().item())
    return max(_ratio_or_inf(squares**0.5, rms_limit * eps * expected_squares**0.5), largest / (max_limit * eps))


def _ratio_or_inf(value: float, limit: float) -> float:
    return value / limit if limit else math.inf


def _squared_norm(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value, dtype=torch.float64)) ** 2
