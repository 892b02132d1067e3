"""Wrong: walks the vocabulary in blocks of 1,024 and forgets the 256 tokens after the last whole block."""

import torch
from torch import Tensor

BLOCK = 1024


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    whole = logits.shape[1] // BLOCK * BLOCK
    log_sum = torch.logsumexp(logits[:, :whole], dim=1)
    return (log_sum - logits.gather(1, target[:, None])[:, 0]).mean()
