"""Takes 32 keys at a time and rescales the sums of each query when its largest score grows.

Problem: causal_attention
Device: both
"""

import torch


def causal_attention(q, k, v, scale):
    length = q.shape[-2]
    row = torch.arange(length, device=q.device)[:, None]
    largest = q.new_full((*q.shape[:-1], 1), float("-inf"))
    total, out = torch.zeros_like(largest), torch.zeros_like(v)
    for first in range(0, length, 32):
        keys, values = k[..., first : first + 32, :], v[..., first : first + 32, :]
        later = torch.arange(first, first + keys.shape[-2], device=q.device) > row
        scores = (q @ keys.mT * scale).masked_fill(later, float("-inf"))
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        raised, kept = torch.exp(scores - new), torch.exp(largest - new)
        total = total * kept + raised.sum(-1, keepdim=True)
        out = out * kept + raised @ values
        largest = new
    return out / total
