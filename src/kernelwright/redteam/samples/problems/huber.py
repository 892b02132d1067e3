"""The mean Huber loss of two arrays, with the threshold as a number among the inputs."""

import torch


def huber(x, y, delta):
    return torch.nn.functional.huber_loss(x, y, delta=delta)


def get_inputs():
    return [torch.randn(90, 331), torch.randn(90, 331), 0.8]
