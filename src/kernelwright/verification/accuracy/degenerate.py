"""Problems that say nothing of who solves them: an input that nothing depends on, an answer that can be guessed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.distributions import AS_GIVEN
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.reference import InputSet, Reference
from kernelwright.verification.transport.state import bitwise_equal

MIN_ELEMENTS = 16
FIRST_SET_INDEX = 500
"""The index of the first input set that is drawn here: no other part of a verification draws these."""


def find_degeneracies(reference: Reference) -> tuple[str, ...]:
    """What is degenerate in a problem, each in a sentence; nothing for a sound one.

    Runs the reference once for each input and a few times more.

    Raises:
        ProblemError: the reference raises on its own inputs.
    """
    one, other = (reference.make_set(reference.make_inputs(FIRST_SET_INDEX + at)) for at in range(2))
    found = [*_find_unused_inputs(reference, one.inputs, other.inputs), *_find_trivial_answers(one, other)]
    tensors = [leaf for leaf in pytree.tree_leaves(one.inputs) if isinstance(leaf, Tensor)]
    numbers = sum(tensor.numel() for tensor in tensors)
    if not tensors and not reference.state_names and _outputs_equal(one.expected.reference, other.expected.reference):
        found.append("it takes and holds no tensor: one answer serves every call")
    elif 0 < numbers < MIN_ELEMENTS:
        found.append(f"its inputs are {numbers} numbers: only the call itself takes time")
    return tuple(found)


def _find_unused_inputs(reference: Reference, one: Args, other: Args) -> list[str]:
    """Inputs that differ from set to set and that no output depends on."""
    leaves, spec = pytree.tree_flatten(one)
    others = pytree.tree_leaves(other)
    before = reference.run_values(one)
    if _outputs_equal(before, reference.run_values(other)) and any(map(_values_differ, leaves, others)):
        return ["its outputs are the same for all inputs"]
    found = []
    tensors = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for number, at in enumerate(tensors):
        if _values_differ(leaves[at], others[at]):
            swapped = [*leaves[:at], others[at], *leaves[at + 1 :]]
            if _outputs_equal(before, reference.run_values(pytree.tree_unflatten(swapped, spec))):
                found.append(f"no output depends on input {number}")
    return found


def _values_differ(one: Any, other: Any) -> bool:
    return (
        isinstance(one, Tensor)
        and isinstance(other, Tensor)
        and one.shape == other.shape
        and not bitwise_equal(one, other)
    )


def _outputs_equal(before: list[Tensor] | None, now: list[Tensor] | None) -> bool:
    if before is None or now is None or len(before) != len(now):
        return False
    return all(map(bitwise_equal, before, now))


def _find_trivial_answers(*sets: InputSet) -> list[str]:
    """Answers that need no work and would be accepted, for every one of these sets."""
    guesses = {"zeros": torch.zeros_like, "its own mean everywhere": _constant_mean}
    return [
        f"{name} would be accepted as its answer"
        for name, guess in guesses.items()
        if all(_would_pass([guess(value) for value in drawn.expected.reference], drawn.expected) for drawn in sets)
    ]


def _constant_mean(value: Tensor) -> Tensor:
    if not value.dtype.is_floating_point or value.numel() < 2:
        return torch.full_like(value, -1)
    return torch.full_like(value, float(value.double().mean()))


def _would_pass(values: list[Tensor], expected: Expected) -> bool:
    return budget.check_accuracy(values, expected, distribution=AS_GIVEN)[0] is None
