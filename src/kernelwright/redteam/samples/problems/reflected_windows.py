"""Windows of reflected, rolled and reversed rows, in BF16."""

import torch


def reflected_windows(x, shift):
    padded = torch.nn.functional.pad(x[None], (5, 9), mode="reflect")[0]
    return padded.roll(shift, -1).unfold(-1, 16, 4).flip(-1).contiguous()


def get_inputs():
    return [torch.randn(30, 200).bfloat16(), 7]
