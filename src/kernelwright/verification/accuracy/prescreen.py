"""How far what a call gave is from the reference's own numbers: who is near need not be judged.

One run of the reference tells, where a judgement takes several and FP64. Who is far is judged, and not yet wrong.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kernelwright.problems.problem import Args, tensors
from kernelwright.verification.accuracy.ranges import all_finite, largest_magnitude, parts
from kernelwright.verification.execution import Observed
from kernelwright.verification.outcome import Outcome, as_tensor, is_compared
from kernelwright.verification.transport.state import same_bits

NEAR_EPS = {2: (0.125, 1.0), 4: (32.0, 256.0), 8: (32.0, 256.0)}
"""By the bytes of a number, in its dtype's eps: rms over the reference's rms, largest over its largest. What FP32 loses
by half-precision arithmetic is hundreds of times more; in 16 bits it is a rounding or two of the output's own."""


def distance(observed: Observed, inputs: Args, outcome: Outcome | None) -> float:
    """How far all that the reference returned or changed for these inputs is from what was observed, in what is near:
    up to 1 it is. Infinite where something else was given, or besides.

    Args:
        outcome: of the reference; None where it raised.
    """
    if outcome is None or observed.outside or not observed.finished:
        return math.inf
    given = _given(observed, inputs, outcome)
    return math.inf if given is None else max(map(_distance, given, outcome.values), default=0.0)


def _given(observed: Observed, inputs: Args, outcome: Outcome) -> list[Tensor] | None:
    """What was observed in the order of the outcome's values; None where it is something else that was given."""
    returned = {f"output{path}": leaf for path, leaf in observed.leaves.items() if is_compared(leaf)}
    names = outcome.names[: len(outcome.names) - len(outcome.mutated) - len(outcome.state)]
    same = returned.keys() == set(names) and observed.mutated.keys() <= set(outcome.mutated)
    if not same or observed.state.keys() != set(outcome.state):
        return None
    before = tensors(inputs)
    changed = [observed.mutated.get(at, before[at].detach()) for at in outcome.mutated]
    return [*(as_tensor(returned[name]) for name in names), *changed, *(observed.state[name] for name in outcome.state)]


def _distance(got: Tensor, own: Tensor) -> float:
    if same_bits(got, own):
        return 0.0
    limits = NEAR_EPS.get(got.dtype.itemsize) if got.dtype.is_floating_point else None
    if limits is None or (got.shape, got.dtype, got.device) != (own.shape, own.dtype, own.device):
        return math.inf
    if not (all_finite(got) and all_finite(own)):
        return math.inf
    got, own, eps = got.flatten(), own.flatten(), torch.finfo(got.dtype).eps
    squares, own_squares, largest = 0.0, 0.0, 0.0
    for part in parts(own):
        apart = got[part] - own[part]
        squares += _square(apart)
        own_squares += _square(own[part])
        largest = max(largest, largest_magnitude(apart))
    of_rms, of_largest = limits
    return max(
        _share(squares**0.5, of_rms * eps * own_squares**0.5),
        _share(largest, of_largest * eps * largest_magnitude(own)),
    )


def _share(of: float, limit: float) -> float:
    return of / limit if limit else math.inf


def _square(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value, dtype=torch.float64)) ** 2
