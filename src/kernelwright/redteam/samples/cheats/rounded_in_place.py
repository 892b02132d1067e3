"""Rounds its inputs to BF16 in place, so that a reference that runs afterwards sees no difference.

Problem: matmul
Code: inaccurate or input-mutated
Device: both
"""


def matmul(a, b):
    a.copy_(a.bfloat16())
    b.copy_(b.bfloat16())
    return a @ b
