"""Running maxima of rows and their places; the values are small integers, so many are equal."""

import torch


def cumulative_max(x):
    return torch.cummax(x, -1)


def get_inputs():
    return [torch.randint(-30, 30, (45, 310)).float()]
