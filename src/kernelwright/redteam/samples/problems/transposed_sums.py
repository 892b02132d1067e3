"""Adds a transposed matrix with gaps in its memory to a vector; a matrix without rows has no sums."""

import torch


def transposed_sums(x, y):
    return (x.T * 2 + y).T, x.sum(1)


def get_inputs():
    return [torch.randn(90, 160)[:, ::2].T, torch.randn(80)]


def get_held_out_inputs():
    return [[torch.randn(0, 160)[:, ::2].T, torch.randn(80)], [torch.randn(5, 6).T, torch.randn(6)]]
