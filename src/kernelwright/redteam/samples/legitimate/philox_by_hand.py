"""Philox 4x32 with ten rounds, with a key from torch's generator in every call, and Box and Muller's normal numbers.

Problem: noisy_dropout
Device: cpu
"""

import math

import torch

LOW = 0xFFFFFFFF


def philox(count, key):
    """`count` rows of four 32-bit numbers."""
    words = [torch.arange(count), torch.zeros(count, dtype=torch.int64), *torch.zeros(2, count, dtype=torch.int64)]
    key_low, key_high = key & LOW, key >> 32
    for _ in range(10):
        products = [multiply(words[0], 0xD2511F53), multiply(words[2], 0xCD9E8D57)]
        words = [
            products[1][0] ^ words[1] ^ key_low,
            products[1][1],
            products[0][0] ^ words[3] ^ key_high,
            products[0][1],
        ]
        key_low, key_high = (key_low + 0x9E3779B9) & LOW, (key_high + 0xBB67AE85) & LOW
    return torch.stack(words, 1)


def multiply(word, factor):
    """High and low 32 bits of a product, from 16-bit halves."""
    low, high = word * (factor & 0xFFFF), word * (factor >> 16)
    middle = (low >> 16) + (high & 0xFFFF)
    return (high >> 16) + (middle >> 16), ((middle & 0xFFFF) << 16) | (low & 0xFFFF)


def noisy_dropout(x):
    key = int(torch.randint(1 << 62, ()))
    uniform = (philox(x.numel(), key).double() + 0.5) / 2**32
    kept = (uniform[:, 0] >= 0.25).view_as(x)
    noise = torch.sqrt(-2 * torch.log(uniform[:, 1])) * torch.cos(2 * math.pi * uniform[:, 2])
    return torch.where(kept, x / 0.75, 0.0), x + noise.view_as(x).float()
