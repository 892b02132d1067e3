"""Dropout in training mode, with noise added to what is kept."""

import torch


def noisy_dropout(x):
    return torch.nn.functional.dropout(x, 0.25, training=True), x + torch.randn_like(x)


def get_inputs():
    return [torch.randn(48, 160)]
