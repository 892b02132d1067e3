"""Detects degenerate problems, which do not test a candidate: unused inputs, trivial answers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.problems.problem import Args
from kernelwright.verification.accuracy import budget
from kernelwright.verification.accuracy.arguments import is_argument
from kernelwright.verification.accuracy.distributions import AS_GIVEN
from kernelwright.verification.accuracy.expected import Expected
from kernelwright.verification.input_set import InputSet
from kernelwright.verification.reference import Reference
from kernelwright.verification.transport.state import bitwise_equal

MIN_ELEMENTS = 16
FIRST_SET_INDEX = 500
"""Index of the first input set that is drawn here; no other part of a verification uses these indices."""


def find_degeneracies(reference: Reference) -> tuple[str, ...]:
    """One sentence for each way in which a problem is degenerate; empty for a sound one.

    Runs the reference once for each input and a few times more.

    Raises:
        ProblemError: the reference raises on its own inputs.
    """
    first, second = (
        reference.make_set(reference.make_inputs(index), reference.call_seed(index))
        for index in (FIRST_SET_INDEX, FIRST_SET_INDEX + 1)
    )
    sentences = [*_find_unused_inputs(reference, first.inputs, second.inputs), *_find_trivial_answers(first, second)]
    tensors = [leaf for leaf in pytree.tree_leaves(first.inputs) if isinstance(leaf, Tensor)]
    numbers = sum(tensor.numel() for tensor in tensors)
    if (
        not tensors
        and not reference.state_names
        and _outputs_equal(first.expected.reference, second.expected.reference)
    ):
        sentences.append("it has no input tensors and no state: one answer is right for every call")
    elif 0 < numbers < MIN_ELEMENTS:
        sentences.append(f"its inputs are only {numbers} numbers: a call is mostly overhead")
    return tuple(sentences)


def _find_unused_inputs(reference: Reference, one: Args, other: Args) -> list[str]:
    """Inputs that no output depends on, as far as they differ between sets or can be redrawn."""
    leaves, spec = pytree.tree_flatten(one)
    others = pytree.tree_leaves(other)
    outputs = reference.run_values(one)
    if _outputs_equal(outputs, reference.run_values(other)) and any(map(_values_differ, leaves, others)):
        return ["its outputs are the same for all inputs"]
    unused = []
    tensors = [at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for number, at in enumerate(tensors):
        swapped: Args | None = None
        if _values_differ(leaves[at], others[at]):
            swapped = pytree.tree_unflatten([*leaves[:at], others[at], *leaves[at + 1 :]], spec)
        elif isinstance(leaves[at], Tensor) and is_argument(leaves[at]):  # the same in every set, as a mask of ones
            swapped = reference.redraw_argument(one, at, number)
        if swapped and _outputs_equal(outputs, reference.run_values(swapped)):
            unused.append(f"no output depends on input {number}")
    return unused


def _values_differ(one: Any, other: Any) -> bool:
    return (
        isinstance(one, Tensor)
        and isinstance(other, Tensor)
        and one.shape == other.shape
        and not bitwise_equal(one, other)
    )


def _outputs_equal(outputs: list[Tensor] | None, other_outputs: list[Tensor] | None) -> bool:
    if outputs is None or other_outputs is None or len(outputs) != len(other_outputs):
        return False
    return all(map(bitwise_equal, outputs, other_outputs))


def _find_trivial_answers(*sets: InputSet) -> list[str]:
    """Trivial answers that would be accepted for each of these sets."""
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
