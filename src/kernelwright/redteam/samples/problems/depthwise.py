"""A depthwise convolution of 3 by 3 with dilation, in channels-last memory."""

import torch


def depthwise(x, w):
    return torch.nn.functional.conv2d(x, w, padding=2, dilation=2, groups=len(w))


def get_inputs():
    x = torch.randn(2, 24, 27, 30).to(memory_format=torch.channels_last)
    return [x, torch.randn(24, 1, 3, 3)]
