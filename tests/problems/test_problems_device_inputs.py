"""Inputs are made where they are needed, as far as the problem lets them."""

import torch

from kernelwright.problems.device_inputs import draw_inputs_on


def test_the_host_makes_its_own():
    def make():
        return [torch.zeros(1)], {}

    assert draw_inputs_on("cpu", make) is make


def test_a_device_makes_them_itself():
    (made,), _ = draw_inputs_on("meta", lambda: ([torch.randn(3)], {}))()
    assert made.device.type == "meta"


def test_what_only_the_host_can_make_stays_there():
    generator = torch.Generator().manual_seed(1)
    (made,), _ = draw_inputs_on("meta", lambda: ([torch.randn(3, generator=generator).numpy()], {}))()
    assert made.shape == (3,)
