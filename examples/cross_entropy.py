"""Cross-entropy over a vocabulary of 128,256 tokens, as log-softmax, gather, mean.

Waits on memory: log-softmax reads the logits and writes a tensor of their size, from which the loss then picks one
number a row. Reading the logits once is enough.
"""

import os

import torch
from torch import Tensor, nn

ROWS = 8192 if os.environ.get("KW_SIZE") == "gpu" else 256
VOCABULARY = 128_256


class Model(nn.Module):
    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(logits, target)


def get_inputs() -> list[Tensor]:
    return [torch.randn(ROWS, VOCABULARY) * 2, torch.randint(0, VOCABULARY, (ROWS,))]
