"""Only an order that was requested as stable is exact among equal values."""

import pytest
import torch

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
