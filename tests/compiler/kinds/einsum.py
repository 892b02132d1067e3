"""Attention scores as einsum."""

import torch


def einsum(q, k, v):
    weights = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) * 0.25, -1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v) * 2


def get_inputs():
    return [torch.randn(2, 5, 3, 16) for _ in range(3)]
