"""Wrong: attention without its causal mask, so every token sees the ones after it."""

import sys
from pathlib import Path

from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from decoder_block import Attention, Model, rotate, split_heads


class UnmaskedAttention(Attention):
    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (split_heads(project(x)) for project in (self.query, self.key, self.value))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.output(mixed.transpose(1, 2).flatten(2))


class ModelNew(Model):
    def __init__(self) -> None:
        super().__init__()
        self.attention = UnmaskedAttention()
