"""How often each of 100 labels occurs."""

import torch


def label_counts(labels):
    return torch.bincount(labels, minlength=100)


def get_inputs():
    return [torch.randint(0, 100, (150_000,))]
