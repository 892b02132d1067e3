import torch


def nan(x):
    return x / (x - x)


def get_inputs():
    return [torch.zeros(5)]
