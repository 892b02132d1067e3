"""Quick accuracy checks on a single input set: of one region, and of a whole program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.core.verdict import Reason
from kernelwright.problems.problem import Args, tensor_leaves
from kernelwright.verification.accuracy.budget import check_accuracy
from kernelwright.verification.accuracy.distributions import AS_GIVEN
from kernelwright.verification.accuracy.expected import Expected, compute_expected
from kernelwright.verification.outcome import run_program


def find_mismatch(
    reference: Callable[..., Any], candidate: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> Reason | None:
    """The reason why the candidate is less accurate than the error budget allows on these inputs, or None.

    Filters wrong candidates in a search. It does not replace `verify` on the whole program.
    """
    expected = compute_expected(reference, None, (list(inputs), {}))
    before = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        got = tensor_leaves(candidate(*inputs))
    for at, (old, new) in enumerate(zip(before, inputs, strict=True)):
        if not torch.equal(old, new) and not old.isnan().any():
            return Reason(code="input-mutated", detail=f"input {at} was changed")
    return check_accuracy(got, expected, distribution=AS_GIVEN)[0]


def find_program_mismatch(program: Callable[..., Any], inputs: Args, expected: Expected) -> str:
    """Why a program's results differ from the expected ones in values or strides, or an empty string."""
    module = program if isinstance(program, torch.nn.Module) else None
    got = run_program(program, module, inputs).values
    if reason := check_accuracy(got, expected, distribution=AS_GIVEN)[0]:
        return reason.detail
    same_strides = [one.stride() for one in got] == [one.stride() for one in expected.reference]
    return "" if same_strides else "its results have other strides"
