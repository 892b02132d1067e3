"""Adds every number to the one a power of two further on, in as many steps as the length has bits (Hillis and Steele).

Problem: running_sum
Device: both
"""


def running_sum(x):
    out, step = x.clone(), 1
    while step < x.shape[-1]:
        shifted = out[..., :-step].clone()
        out[..., step:] += shifted
        step *= 2
    return out
