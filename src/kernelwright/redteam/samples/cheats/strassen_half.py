"""Multiplies by Strassen's seven products with FP16 operands.

Problem: matmul
Code: inaccurate
Device: both
"""

import torch


def halves(x):
    rows, columns = (size + size % 2 for size in x.shape)
    padded = torch.nn.functional.pad(x, (0, columns - x.shape[1], 0, rows - x.shape[0]))
    (p, q), (r, s) = (part.chunk(2, 1) for part in padded.chunk(2))
    return p, q, r, s


def leaf(a, b):
    return a.half().float() @ b.half().float()


def matmul(a, b):
    (p, q, r, s), (t, u, v, w) = halves(a), halves(b)
    one, two, three, four = leaf(p + s, t + w), leaf(r + s, t), leaf(p, u - w), leaf(s, v - t)
    five, six, seven = leaf(p + q, w), leaf(r - p, t + u), leaf(q - s, v + w)
    top = torch.cat((one + four - five + seven, three + five), 1)
    bottom = torch.cat((two + four, one - two + three + six), 1)
    return torch.cat((top, bottom))[: a.shape[0], : b.shape[1]]
