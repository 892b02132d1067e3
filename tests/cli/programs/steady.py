"""A problem whose call takes some hundred microseconds, so that few of them are a series of the judge."""

import torch


def steady(x, y):
    return torch.relu(x.sort(-1).values + y)


def get_inputs():
    return [torch.randn(120, 70), torch.randn(120, 70)]
