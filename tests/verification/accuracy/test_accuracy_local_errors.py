"""Errors in a few places: small rows, small outputs, single elements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from local_errors import small_row_cheats, some_wrong, uneven

from kernelwright.core.verdict import Accuracy, Reason
from kernelwright.verification.accuracy.budget import check_accuracy
from kernelwright.verification.accuracy.distributions import AS_GIVEN
from kernelwright.verification.accuracy.expected import compute_expected

Program = Callable[..., Tensor]


def check(program: Program, candidate: Program, inputs: list[Tensor]) -> tuple[Reason | None, Accuracy | None]:
    expected = compute_expected(program, None, (inputs, {}))
    return check_accuracy([candidate(*inputs)], expected, distribution=AS_GIVEN)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", small_row_cheats(torch.matmul))
def test_small_rows_are_measured_by_their_own_scale(name: str) -> None:
    inputs = [uneven(64, 128), torch.randn(128, 60)]
    reason, accuracy = check(torch.matmul, small_row_cheats(torch.matmul)[name], inputs)
    assert reason and reason.code == "inaccurate" and accuracy and accuracy.error_over_limit > 1.2


def test_full_precision_in_small_rows_is_accepted() -> None:
    inputs = [uneven(64, 128), torch.randn(128, 60)]

    def in_blocks(a: Tensor, b: Tensor) -> Tensor:
        return sum((a[:, k : k + 16] @ b[k : k + 16] for k in range(0, 128, 16)), torch.zeros(()))

    for candidate in (in_blocks, lambda a, b: (a.double() @ b.double()).float(), lambda a, b: (b.T @ a.T).T):
        reason, accuracy = check(torch.matmul, candidate, inputs)
        assert reason is None and accuracy and accuracy.error_over_limit < 0.3


def test_rows_that_the_reference_computes_badly_are_wide() -> None:
    """Cancellation in some rows: the reference is far from the golden there, and a candidate may be too."""

    def program(x: Tensor, shift: Tensor) -> Tensor:
        return (x + shift) - shift

    shift = torch.zeros(32, 1)
    shift[5:9] = 30000.0
    x = torch.randn(32, 64)
    assert check(program, program, [x, shift])[0] is None
    rough = program(x, shift)
    for row, accepted in ((6, True), (20, False)):
        got = rough.clone()
        got[row] += 1e-3 * torch.randn(64)
        assert (check(program, lambda *_, got=got: got, [x, shift])[0] is None) == accepted, row


@pytest.mark.parametrize("count", [1, 2, 16, 64, 300, 2000, 3999])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.45])
@pytest.mark.parametrize("error", [0.01, 0.1, -1.0])
def test_small_outputs_have_no_free_elements(count: int, share: float, error: float) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).tanh() + x

    inputs = [torch.randn(count), torch.randn(count)]
    assert check(program, some_wrong(program, share, error), inputs)[0] is not None
    fused: Program = lambda x, y: (torch.tanh(x * y).double() + x.double()).float()  # noqa: E731
    assert check(program, fused, inputs)[0] is None


def test_a_random_element_of_a_large_output_is_found() -> None:
    inputs = [torch.randn(500, 64), torch.randn(64, 600)]
    found = [check(torch.matmul, some_wrong(torch.matmul, 0.0, -1.0), inputs)[0] is not None for _ in range(10)]
    assert sum(found) >= 9


def test_the_worst_row_is_named() -> None:
    inputs = [uneven(16, 64), torch.randn(64, 60)]
    inputs[0][3] = torch.randn(64) * 1e-5

    def candidate(a: Tensor, b: Tensor) -> Tensor:
        out = a @ b
        out[3] = 0
        return out

    reason, accuracy = check(torch.matmul, candidate, inputs)
    assert reason and accuracy and accuracy.index[0] == 3 and accuracy.metric in ("worst row", "worst element")
    assert accuracy.error == pytest.approx(1.0, rel=0.01) or accuracy.metric == "worst element"
    assert accuracy.got == "0.0"
