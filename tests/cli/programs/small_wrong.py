import torch


def small(x, y):
    return torch.relu(x.half() + y.half()).float()
