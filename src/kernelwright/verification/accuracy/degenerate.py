"""Problems that say nothing of who solves them: an input that nothing depends on, an answer that can be guessed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.distributions import AS_GIVEN
from kernelwright.verification.accuracy.expected import Right
from kernelwright.verification.reference import InputSet, Reference
from kernelwright.verification.transport.state import same_bits

LEAST_NUMBERS = 16
FIRST = 500
"""The index of the first input set that is drawn here: no other part of a verification draws these."""


def degeneracies(reference: Reference) -> tuple[str, ...]:
    """What is degenerate in a problem, each in a sentence; nothing for a sound one.

    Runs the reference once for each input and a few times more.

    Raises:
        ProblemError: the reference raises on its own inputs.
    """
    one, other = (reference.set_of(reference.inputs(FIRST + at)) for at in range(2))
    found = [*_unread(reference, one.inputs, other.inputs), *_guessed(one, other)]
    tensors = [leaf for leaf in pytree.tree_leaves(one.inputs) if isinstance(leaf, Tensor)]
    numbers = sum(tensor.numel() for tensor in tensors)
    if not tensors and not reference.keeps and _equal(one.right.reference, other.right.reference):
        found.append("it takes and holds no tensor: one answer serves every call")
    elif 0 < numbers < LEAST_NUMBERS:
        found.append(f"its inputs are {numbers} numbers: only the call itself takes time")
    return tuple(found)


def _unread(reference: Reference, one: Args, other: Args) -> list[str]:
    """Inputs that differ from set to set and that no output depends on."""
    leaves, spec = pytree.tree_flatten(one)
    others = pytree.tree_leaves(other)
    before = reference.values(one)
    if _equal(before, reference.values(other)) and any(map(_differ, leaves, others)):
        return ["its outputs are the same for all inputs"]
    found = []
    tensors = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for number, at in enumerate(tensors):
        if _differ(leaves[at], others[at]):
            swapped = [*leaves[:at], others[at], *leaves[at + 1 :]]
            if _equal(before, reference.values(pytree.tree_unflatten(swapped, spec))):
                found.append(f"no output depends on input {number}")
    return found


def _differ(one: Any, other: Any) -> bool:
    return (
        isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape and not same_bits(one, other)
    )


def _equal(before: list[Tensor] | None, now: list[Tensor] | None) -> bool:
    if before is None or now is None or len(before) != len(now):
        return False
    return all(map(same_bits, before, now))


def _guessed(*sets: InputSet) -> list[str]:
    """Answers that need no work and would be accepted, for every one of these sets."""
    guesses = {"zeros": torch.zeros_like, "its own mean everywhere": _mean}
    return [
        f"{name} would be accepted as its answer"
        for name, guess in guesses.items()
        if all(_would_pass([guess(value) for value in drawn.right.reference], drawn.right) for drawn in sets)
    ]


def _mean(value: Tensor) -> Tensor:
    if not value.dtype.is_floating_point or value.numel() < 2:
        return torch.full_like(value, -1)
    return torch.full_like(value, float(value.double().mean()))


def _would_pass(values: list[Tensor], right: Right) -> bool:
    return budget.check(values, right, distribution=AS_GIVEN)[0] is None
