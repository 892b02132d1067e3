"""The Kullback-Leibler divergence of two rows of logits, for every row."""

import torch


def divergence(x, y):
    log_x, log_y = x.log_softmax(-1), y.log_softmax(-1)
    return torch.nn.functional.kl_div(log_x, log_y, reduction="none", log_target=True).sum(-1)


def get_inputs():
    return [torch.randn(70, 400), torch.randn(70, 400)]
