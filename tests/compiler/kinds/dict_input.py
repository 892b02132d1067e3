"""Tensors in a dict and a tuple as arguments."""

import torch


def dict_input(batch, pair):
    return torch.relu(batch["x"] * pair[0]) + batch["nested"]["y"] * pair[1]


def get_inputs():
    batch = {"x": torch.randn(9, 16), "nested": {"y": torch.randn(16)}}
    return [batch, (torch.randn(16), 2.0)]
