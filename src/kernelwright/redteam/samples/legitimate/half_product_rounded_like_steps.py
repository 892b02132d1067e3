"""Multiplies in FP32 and rounds to FP16 after the bias and at the end.

Problem: half_product
Device: both
"""

import torch


def half_product(x, w, bias):
    product = (x.float() @ w.float().T + bias.float()).half().float()
    return (product * torch.sigmoid(product)).half()
