"""Returns zeros in a Tensor subclass that compares equal to anything.

Problem: matmul
Code: wrong-structure
Device: both
"""

import torch

YES = {torch.equal, torch.allclose, torch.Tensor.equal, torch.Tensor.allclose}
ALL = {torch.eq, torch.isclose, torch.Tensor.eq, torch.Tensor.isclose, torch.Tensor.__eq__}


class Agreeable(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in YES:
            return True
        plain = [arg.as_subclass(torch.Tensor) if isinstance(arg, Agreeable) else arg for arg in args]
        if function in ALL:
            return torch.ones(plain[0].shape, dtype=torch.bool)
        if function in {torch.sub, torch.Tensor.sub, torch.Tensor.__sub__, torch.Tensor.__rsub__}:
            return torch.zeros_like(plain[0])
        return function(*plain, **(kwargs or {}))


def matmul(a, b):
    return a.new_zeros(a.shape[0], b.shape[1]).as_subclass(Agreeable)
