"""The four largest of each row and their indices; the values are small integers, so many are equal."""

import torch


def top_four(x):
    return torch.topk(x, 4, dim=-1)


def get_inputs():
    return [torch.randint(0, 50, (61, 300)).float()]
