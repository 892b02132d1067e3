import torch


def greedy(x):
    return torch.empty(2**46) + x


def get_inputs():
    return [torch.randn(1)]
