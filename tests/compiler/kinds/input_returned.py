"""An input that is returned as it is."""

import torch


def input_returned(x, y):
    return x, torch.relu(x + y), y


def get_inputs():
    return [torch.randn(9, 16), torch.randn(16)]
