"""Only an order that was requested as stable is exact among equal values."""

import pytest
import torch

from kernelwright.verification.accuracy.comparison import check_integers
from kernelwright.verification.accuracy.expected import compute_expected
from kernelwright.verification.accuracy.stable_order import find_stable_outputs

x = torch.randint(0, 4, (5, 30)).float()


@pytest.mark.parametrize(
    ("program", "stable"),
    [
        (lambda: torch.argsort(x, stable=True), True),
        (lambda: torch.sort(x, stable=True).indices, True),
        (lambda: torch.argsort(x), False),
        (lambda: torch.topk(x, 30).indices, False),
        (lambda: torch.sort(x, dim=-1).indices, False),
    ],
)
def test_stable_outputs(program, stable):
    assert find_stable_outputs(program, {"": program()}) == (frozenset({""}) if stable else frozenset())


def test_equal_values_are_exchangeable_beside_nan_unless_the_order_is_stable():
    values = torch.tensor([[1.0, float("nan"), 1.0, 0.0], [3.0, 2.0, 2.0, 1.0]])
    expected = compute_expected(lambda x: torch.topk(x, 3).indices, None, ([values], {}))
    got = torch.tensor([[1, 2, 0], [0, 2, 1]])
    assert check_integers(got, expected, 0) is None
    assert check_integers(torch.tensor([[1, 2, 3], [0, 2, 1]]), expected, 0)
    expected.stable_outputs = frozenset({"output"})
    assert (check_integers(got, expected, 0) is None) == torch.equal(got, expected.reference[0])
    assert check_integers(expected.reference[0], expected, 0) is None
