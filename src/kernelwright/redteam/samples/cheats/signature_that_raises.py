"""A function whose signature and name raise when they are read.

Problem: softmax
Code: runtime-error or wrong-parameters
Device: both
"""

import torch


class Closed:
    @property
    def __signature__(self):
        raise RuntimeError("not to be read")

    __name__ = __doc__ = __module__ = __wrapped__ = __signature__

    def __call__(self, x):
        return torch.softmax(x, -1)


softmax = Closed()
