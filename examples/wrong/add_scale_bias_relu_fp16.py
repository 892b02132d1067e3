"""Wrong: half the bytes and twice the speed by computing in float16, for a float32 program."""

import torch
from torch import Tensor


def add_scale_bias_relu(x: Tensor, y: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return torch.relu((x.half() + y.half()) * scale.half() + bias.half()).to(x.dtype)
