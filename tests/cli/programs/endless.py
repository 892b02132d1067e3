import torch


def endless(x):
    while True:
        x = x + 1


def get_inputs():
    return [torch.randn(3)]
