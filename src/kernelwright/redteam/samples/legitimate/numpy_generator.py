"""NumPy's generator, seeded from torch's in every call.

Problem: noisy_dropout
Device: cpu
"""

import numpy as np
import torch


def noisy_dropout(x):
    generator = np.random.default_rng(int(torch.randint(1 << 62, ())))
    kept = torch.from_numpy(generator.random(x.shape, dtype=np.float32)) >= 0.25
    noise = torch.from_numpy(generator.standard_normal(x.shape, dtype=np.float32))
    return kept * (x / 0.75), noise + x
