"""In how many bits each word of one array differs from each word of another."""

import torch


def bit_distances(x, y):
    different = x[:, None] ^ y
    return sum((different >> bit) & 1 for bit in range(64))


def get_inputs():
    return [torch.randint(-(2**62), 2**62, (60,)), torch.randint(-(2**62), 2**62, (110,))]
