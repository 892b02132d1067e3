"""An OrderedDict of results, as torchvision's models return it."""

from collections import OrderedDict

import torch


def ordered_dict_output(x):
    return OrderedDict(out=torch.sigmoid(x) * 2, aux=torch.tanh(x) + 1)


def get_inputs():
    return [torch.randn(9, 16)]
