"""An output is an earlier call's if it is that where another one is expected, not where both only round differently."""

import pytest
import torch

from kernelwright.verification.attacks.stale_output import OutputHistory


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_the_result_of_an_earlier_call_is_found(dtype):
    before, now = (torch.randn(4, 300).mul(50).to(dtype) for _ in range(2))
    history = OutputHistory()
    history.append({"": before})
    assert history.is_stale({"": before.clone()}, {"": now})
    assert not history.is_stale({"": now}, {"": now})


def test_a_call_with_nearly_the_same_inputs_has_nearly_the_same_result():
    expected = torch.randn(4, 300)
    mine = expected * (1 + 1e-6)
    now = mine.clone()
    now[0, 0], expected[0, 0] = torch.nan, 8.0
    history = OutputHistory()
    history.append({"": mine})
    assert not history.is_stale({"": now}, {"": expected})
