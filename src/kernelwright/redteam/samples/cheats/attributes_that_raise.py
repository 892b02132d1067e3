"""Returns a subclass of a tensor whose shape, layout, length and iterator raise when they are read.

Problem: softmax
Code: wrong-structure or runtime-error
Device: both
"""

import torch


def refuse(self, *args):
    raise RuntimeError("not to be read")


NAMES = ("shape", "layout", "dtype", "device", "grad_fn", "is_sparse")
Closed = type(
    "Closed",
    (torch.Tensor,),
    {name: property(refuse) for name in NAMES} | dict.fromkeys(("__len__", "__iter__", "data_ptr", "stride"), refuse),
)


def softmax(x):
    return torch.softmax(x, -1).as_subclass(Closed)
