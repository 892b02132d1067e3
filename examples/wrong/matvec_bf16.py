"""Wrong: half the bytes by rounding the weights to the next narrower format, for a program that did not ask for it."""

import torch
from torch import Tensor

NARROWER = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float8_e4m3fn}


def matvec(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.to(NARROWER[weight.dtype]).to(x.dtype).T
