"""The inverse of a well-conditioned matrix."""

import torch


def inverse(a):
    return torch.linalg.inv(torch.eye(len(a), dtype=a.dtype, device=a.device) * 2 + torch.tanh(a) / len(a) ** 0.5)


def get_inputs():
    return [torch.randn(80, 80)]
