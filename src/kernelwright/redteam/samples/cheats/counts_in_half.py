"""Passes its counts through FP16, which is exact up to 2048.

Problem: label_counts
Code: inaccurate
Device: both
"""

import torch


def label_counts(labels):
    return torch.bincount(labels, minlength=100).half().long()
