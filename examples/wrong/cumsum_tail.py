"""Wrong: a scan in blocks of 1,000 rows whose last, shorter block starts from zero again."""

import torch
from torch import Tensor

BLOCK = 1000


def cumsum(x: Tensor) -> Tensor:
    whole = len(x) // BLOCK * BLOCK
    return torch.cat((x[:whole].cumsum(0), x[whole:].cumsum(0)))
