"""A CUDA graph shows the time of a call without its launches."""

import pytest
import torch

from kernelwright.compiler.cuda_graph import measure_in_graph_us


def waits(x):
    return x * x.sum().item()


@pytest.mark.gpu
def test_a_graph_shows_what_the_device_takes_and_one_that_cannot_be_captured_does_no_harm():
    x = torch.randn(1000, device="cuda")
    assert 0 < measure_in_graph_us(lambda: x + 1) < 10
    assert measure_in_graph_us(lambda: waits(x)) is None
    assert torch.randn(3, device="cuda").isfinite().all()
