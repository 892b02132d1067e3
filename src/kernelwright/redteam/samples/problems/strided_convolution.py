"""A convolution of 5 by 5 with stride, padding, groups and a bias, which belongs to the module."""

import torch


class Model(torch.nn.Module):
    def __init__(self, into, out):
        super().__init__()
        self.conv = torch.nn.Conv2d(into, out, 5, stride=2, padding=2, groups=2)

    def forward(self, x):
        return self.conv(x)


def get_init_inputs():
    return [6, 10]


def get_inputs():
    return [torch.randn(2, 6, 33, 38)]
