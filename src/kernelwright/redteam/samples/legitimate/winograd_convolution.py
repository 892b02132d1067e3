"""Convolves tiles of 4 by 4 by Winograd's F(4x4, 3x3): a quarter of the multiplications, in FP32.

Problem: convolution
Device: both
"""

import torch

INPUT = [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
         [0, 4, 0, -5, 0, 1]]  # fmt: skip
FILTER = [[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]
OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def convolution(x, w):
    batch, channels, height, width = x.shape
    to_input, to_filter, to_output = (torch.tensor(m, dtype=x.dtype, device=x.device) for m in (INPUT, FILTER, OUTPUT))
    to_filter = to_filter / 24
    rows, columns = -(-height // 4), -(-width // 4)
    padded = torch.nn.functional.pad(x, (1, 4 * columns - width + 1, 1, 4 * rows - height + 1))
    patches = padded.unfold(2, 6, 4).unfold(3, 6, 4)
    data = (to_input @ patches @ to_input.T).permute(4, 5, 1, 0, 2, 3).reshape(36, channels, -1)
    filters = (to_filter @ w @ to_filter.T).permute(2, 3, 0, 1).reshape(36, -1, channels)
    sums = (filters @ data).view(6, 6, -1, batch, rows, columns).permute(3, 2, 4, 5, 0, 1)
    out = (to_output @ sums @ to_output.T).permute(0, 1, 2, 4, 3, 5).reshape(batch, -1, 4 * rows, 4 * columns)
    return out[:, :, :height, :width].contiguous()
