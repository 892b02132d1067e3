"""A stable sort of integers: values and places."""

import torch


def stable_order(keys):
    return torch.sort(keys, dim=-1, stable=True)


def get_inputs():
    return [torch.randint(-500, 500, (12, 800))]
