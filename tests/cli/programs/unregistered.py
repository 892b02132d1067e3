"""A custom operator whose FLOPs nobody registered."""

import torch


@torch.library.custom_op("kwtest::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def unregistered(x):
    return mystery(x)


def get_inputs():
    return [torch.randn(1000, 1000)]
