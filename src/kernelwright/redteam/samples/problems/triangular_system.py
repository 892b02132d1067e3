"""Solves a well-conditioned triangular system in FP64."""

import torch


def triangular_system(a, b):
    lower = torch.tanh(a).tril(-1) / len(a) + torch.eye(len(a), dtype=a.dtype, device=a.device)
    return torch.linalg.solve_triangular(lower, b, upper=False)


def get_inputs():
    return [torch.randn(90, 90, dtype=torch.float64), torch.randn(90, 20, dtype=torch.float64)]
