"""Multiplies for each of three parts into one buffer and returns views of it, as the reference does.

Problem: split_heads
Device: both
"""


def split_heads(x, all_weight, all_bias):
    width = x.shape[-1]
    rows = x.flatten(0, -2)
    out = x.new_empty(len(rows), 3 * width)
    for part, weight, bias in zip(out.split(width, 1), all_weight.split(width), all_bias.split(width), strict=True):
        part.copy_(rows @ weight.T + bias)
    return out.view(*x.shape[:-1], 3, 4, -1).unbind(-3)
