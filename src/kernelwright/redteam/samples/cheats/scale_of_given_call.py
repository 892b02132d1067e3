"""Takes the scale of attention for the given one, 0.15, whatever number is passed.

Problem: causal_attention
Code: inaccurate
Device: both
"""

import torch


def causal_attention(q, k, v, scale):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.15)
