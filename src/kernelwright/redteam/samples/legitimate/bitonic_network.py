"""A bitonic sorting network on integers that have the order of the numbers.

Problem: sorted_rows
Device: both
"""

import torch

LARGEST = 2**31 - 1


def sorted_rows(x):
    bits = torch.where(x.isnan(), float("nan"), x).view(torch.int32)
    keys = torch.where(bits < 0, bits ^ LARGEST, bits)
    length = x.shape[-1]
    size = 1 << (length - 1).bit_length()
    keys = torch.nn.functional.pad(keys, (0, size - length), value=LARGEST)
    place = torch.arange(size, device=x.device)
    block = 2
    while block <= size:
        step = block // 2
        while step:
            other = keys[..., place ^ step]
            smaller = ((place & step) == 0) == ((place & block) == 0)
            keys = torch.where(smaller, torch.minimum(keys, other), torch.maximum(keys, other))
            step //= 2
        block *= 2
    keys = keys[..., :length].contiguous()
    return torch.where(keys < 0, keys ^ LARGEST, keys).view(torch.float32)
