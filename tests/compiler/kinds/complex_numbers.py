"""Complex arithmetic: a rotary embedding as torch's own examples write it."""

import torch


def complex_numbers(x, angles):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    rotations = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(pairs * rotations).flatten(-2) * 2


def get_inputs():
    return [torch.randn(3, 7, 16), torch.rand(7, 8) * 6]
