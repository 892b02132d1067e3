"""One look at a part of a program: whether other code gives the same for inputs as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelwright.core.records import Reason
from kernelwright.problems.problem import tensor_leaves
from kernelwright.verification.accuracy.budget import check_accuracy
from kernelwright.verification.accuracy.distributions import AS_GIVEN
from kernelwright.verification.accuracy.expected import compute_expected


def find_mismatch(
    reference: Callable[..., Any], candidate: Callable[..., Any], inputs: Sequence[torch.Tensor]
) -> Reason | None:
    """Why the candidate is not as accurate as the reference against FP64 on these inputs; None where it is.

    It spares a search what cannot be right. It proves nothing: that is `verify`'s, on a whole program.
    """
    truth = compute_expected(reference, None, (list(inputs), {}))
    before = [tensor.clone() for tensor in inputs]
    with torch.no_grad():
        got = tensor_leaves(candidate(*inputs))
    for at, (was, now) in enumerate(zip(before, inputs, strict=True)):
        if not torch.equal(was, now) and not was.isnan().any():
            return Reason(code="input-mutated", detail=f"input {at} is not as it was")
    return check_accuracy(got, truth, distribution=AS_GIVEN)[0]
