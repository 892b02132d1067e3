"""Sums over the valid positions of padded sequences; every given sequence has full length."""

import torch


def padded_sum(x, lengths):
    valid = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return torch.where(valid[:, :, None], x, 0.0).sum(1)


def get_inputs():
    return [torch.randn(48, 40, 24), torch.full((48,), 40)]
