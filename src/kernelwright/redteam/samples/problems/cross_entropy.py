"""The mean cross-entropy of logits and targets: one number."""

import torch


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits, targets)


def get_inputs():
    return [torch.randn(211, 1009), torch.randint(0, 1009, (211,))]
