"""A generator of its own, seeded by the operating system once, which does not follow torch's seed.

Problem: noisy_dropout
Device: cpu
"""

import torch

generator = torch.Generator()
generator.seed()


def noisy_dropout(x):
    kept = torch.empty_like(x).bernoulli_(0.75, generator=generator)
    return x * kept / 0.75, torch.normal(x, 1.0, generator=generator)
