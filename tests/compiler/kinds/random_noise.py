"""Noise that forward draws."""

import torch


def random_noise(x):
    return torch.tanh(x + torch.randn_like(x) * 0.1) * 2


def get_inputs():
    return [torch.randn(9, 16)]
