"""Sets torch to a single thread during the call and restores the number afterwards.

Problem: matmul
Device: cpu
"""

import torch


def matmul(a, b):
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return torch.einsum("mk,kn->mn", a, b)
    finally:
        torch.set_num_threads(before)
