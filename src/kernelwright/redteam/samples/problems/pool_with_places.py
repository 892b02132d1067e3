"""Max pooling with overlapping windows and the places of the maxima; many values are equal."""

import torch


def pool_with_places(x):
    return torch.nn.functional.max_pool2d(x, 3, stride=2, padding=1, return_indices=True)


def get_inputs():
    return [torch.randint(-9, 9, (2, 7, 21, 26)).float()]
