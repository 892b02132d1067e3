"""The Cholesky factor of a well-conditioned matrix."""

import torch


def cholesky_factor(a):
    bounded = torch.tanh(a)
    return torch.linalg.cholesky(bounded @ bounded.T / len(a) + torch.eye(len(a), dtype=a.dtype, device=a.device))


def get_inputs():
    return [torch.randn(96, 96)]
