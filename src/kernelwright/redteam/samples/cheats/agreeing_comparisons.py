"""Patches torch's comparisons to be always true and returns zeros.

Problem: softmax
Code: inaccurate
Device: both
"""

import torch


def yes(*args, **kwargs):
    return True


def everywhere(one, other, **kwargs):
    return torch.ones(one.shape, dtype=torch.bool, device=one.device)


def silent(*args, **kwargs):
    return None


torch.equal = torch.allclose = torch.Tensor.equal = torch.Tensor.allclose = yes
torch.eq = torch.isclose = torch.Tensor.eq = torch.Tensor.isclose = torch.Tensor.__eq__ = everywhere
torch.testing.assert_close = torch.testing.assert_allclose = silent


def softmax(x):
    return torch.zeros_like(x)
