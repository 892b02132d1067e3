"""A bilinear form of two vectors for each of several outputs."""

import torch


def bilinear_form(x, w, y):
    return torch.einsum("bi,oij,bj->bo", x, w, y)


def get_inputs():
    return [torch.randn(40, 33), torch.randn(12, 33, 27) / 30, torch.randn(40, 27)]
