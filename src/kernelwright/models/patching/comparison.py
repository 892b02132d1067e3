"""Check that a patched model computes the same as before."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from kernelwright.models.patching.report import PatchError

SEQUENCES, TOKENS = 2, 33
"""Size of the random input."""
MAX_ERROR_GROWTH = 1.25
"""Maximum error of the patched model, relative to the original's own error."""
MAX_ROUNDINGS = 4
"""Additional tolerance in roundings, for results whose own error happens to be 0."""


class PatchCheck:
    """Results of a model on random tokens before it is patched, and their error against a copy in higher precision."""

    def __init__(self, model: Any) -> None:
        parameter = next(model.parameters())
        generator = torch.Generator("cpu").manual_seed(0)
        vocabulary = model.get_input_embeddings().num_embeddings
        self.tokens = torch.randint(vocabulary, (SEQUENCES, TOKENS), generator=generator, device="cpu").to(
            parameter.device
        )
        high_precision = copy.deepcopy(model).to(torch.float64 if parameter.dtype == torch.float32 else torch.float32)
        self.expected = self._run(high_precision)
        del high_precision
        self.errors = self._measure_errors(model)

    def _run(self, model: Any) -> dict[str, list[Tensor]]:
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            with torch.no_grad():
                logits = model(input_ids=self.tokens, labels=self.tokens).logits
            model.training = True  # of this module alone: the loss of training, without dropout
            with torch.enable_grad():
                loss = model(input_ids=self.tokens, labels=self.tokens).loss
                parameters = [one for one in model.parameters() if one.requires_grad]
                gradients = torch.autograd.grad(loss, parameters, allow_unused=True) if parameters else ()
        finally:
            for module, training in modes.items():
                module.training = training
        return {
            "the logits": [logits],
            "the loss": [loss.detach()],
            "the gradient": [one for one in gradients if one is not None],
        }

    def _measure_errors(self, model: Any) -> dict[str, float]:
        results = self._run(model)
        return {
            name: _l2_norm(
                actual.to(expected.dtype) - expected for actual, expected in zip(results[name], references, strict=True)
            )
            for name, references in self.expected.items()
        }

    def compare(self, model: Any) -> None:
        """Compare a patched model with the results before.

        Raises:
            PatchError: an error has grown by more than `MAX_ERROR_GROWTH` and `MAX_ROUNDINGS` allow.
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
