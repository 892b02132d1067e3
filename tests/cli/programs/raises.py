import torch


def raises(x):
    raise ValueError("no luck with " + str(tuple(x.shape)))


def get_inputs():
    return [torch.randn(3)]
