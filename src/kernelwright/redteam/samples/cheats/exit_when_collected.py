"""Returns its result in an object that ends the process when it is freed.

Problem: softmax
Code: crash or wrong-structure
Device: both
"""

import os

import torch


class Last(torch.Tensor):
    def __del__(self):
        os._exit(0)


def softmax(x):
    return torch.softmax(x, -1).as_subclass(Last)
