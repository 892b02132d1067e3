"""Whether a patched model still computes what it did."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from kernelwright.models.patching.report import PatchError

SEQUENCES, TOKENS = 2, 33
"""What a patched model is tried on."""
MAX_ERROR_GROWTH = 1.25
"""Of the original's own error, that the patched model may have."""
MAX_ROUNDINGS = 4
"""More, for results whose own error is none by chance."""


class PatchCheck:
    """What a model computes of random tokens before it is patched, and how far that is from a copy of more digits."""

    def __init__(self, model: Any) -> None:
        one = next(model.parameters())
        draw = torch.Generator("cpu").manual_seed(0)
        vocabulary = model.get_input_embeddings().num_embeddings
        self.tokens = torch.randint(vocabulary, (SEQUENCES, TOKENS), generator=draw, device="cpu").to(one.device)
        wide = copy.deepcopy(model).to(torch.float64 if one.dtype == torch.float32 else torch.float32)
        self.expected = self._run(wide)
        del wide
        self.errors = self._measure_errors(model)

    def _run(self, model: Any) -> dict[str, list[Tensor]]:
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            with torch.enable_grad():
                got = model(input_ids=self.tokens, labels=self.tokens)
                wanted = [one for one in model.parameters() if one.requires_grad]
                found = torch.autograd.grad(got.loss, wanted, allow_unused=True) if wanted else ()
        finally:
            for module, training in modes.items():
                module.training = training
        there = [one for one in found if one is not None]
        return {"the logits": [got.logits.detach()], "the loss": [got.loss.detach()], "the gradient": there}

    def _measure_errors(self, model: Any) -> dict[str, float]:
        found = self._run(model)
        return {
            name: _l2_norm(got.to(want.dtype) - want for got, want in zip(found[name], wanted, strict=True))
            for name, wanted in self.expected.items()
        }

    def compare(self, model: Any) -> None:
        """
        Raises:
            PatchError: something is further from the copy than it was by more than `MAX_ERROR_GROWTH` and
                `MAX_ROUNDINGS` allow.
        """
        rounding = MAX_ROUNDINGS * torch.finfo(next(model.parameters()).dtype).eps
        for name, error in self._measure_errors(model).items():
            if not error <= MAX_ERROR_GROWTH * self.errors[name] + rounding * _l2_norm(self.expected[name]):
                raise PatchError(
                    f"{name} of the patched {type(model).__name__} has an error of {error:.2e}, "
                    f"the original's is {self.errors[name]:.2e}"
                )


def _l2_norm(tensors: Iterable[Tensor]) -> float:
    return sum(one.square().sum().item() for one in tensors) ** 0.5
