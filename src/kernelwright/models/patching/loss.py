"""The loss of a causal language model, with the signature of Hugging Face's models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.kernels.losses.op import cross_entropy
from kernelwright.models.patching.closures import collect_names

LOSS_ATTRIBUTE, CAUSAL_LOSS_NAME = "loss_function", "ForCausalLMLoss"


def match_loss(module: nn.Module) -> Callable[..., Any] | str | None:
    """Our loss for a module that computes a causal loss; the reason if it is another loss; None if it computes none.

    A base model inherits the property from the class of all models, but never calls it.
    """
    classes = [cls for cls in type(module).__mro__ if "forward" in vars(cls)]
    has_property = isinstance(getattr(type(module), LOSS_ATTRIBUTE, None), property)
    if not has_property or not any(LOSS_ATTRIBUTE in collect_names(vars(cls)["forward"]) for cls in classes):
        return None
    name = getattr(getattr(module, LOSS_ATTRIBUTE), "__name__", "")
    return (
        causal_loss
        if name == CAUSAL_LOSS_NAME
        else f"its {LOSS_ATTRIBUTE} is {name or 'unnamed'}, not {CAUSAL_LOSS_NAME}"
    )


def causal_loss(
    logits: Tensor,
    labels: Tensor | None,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Hugging Face's loss of a causal model: the label of each token is the next one.

    Args:
        logits: (B, S, vocab_size).
        labels: (B, S); ignored if `shift_labels`, already shifted, are passed.
        num_items_in_batch: divisor of the sum; default is the number of labels that are not ignored.
    """

    def compute(target: Tensor, reduction: Any) -> Tensor:
        return cross_entropy(logits.reshape(-1, vocab_size), target, ignore_index=ignore_index, reduction=reduction)

    return reduce_causal_loss(compute, labels, shift_labels, num_items_in_batch, ignore_index, logits.device)


def reduce_causal_loss(
    compute: Callable[[Tensor, Any], Tensor],
    labels: Tensor | None,
    shift_labels: Tensor | None,
    num_items_in_batch: Tensor | int | None,
    ignore_index: int,
    device: torch.device,
) -> Tensor:
    """The mean of a loss over the labels, shifted by one token, or its sum over `num_items_in_batch`.

    Args:
        compute: of the targets, (B * S,), on `device`, and the reduction, returns the loss.
    """
    if shift_labels is None:
        assert labels is not None
        shift_labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    target = shift_labels.reshape(-1).to(device)
    if num_items_in_batch is None:
        return compute(target, "mean")
    loss = compute(target, "sum")
    return loss / (num_items_in_batch.to(loss.device) if isinstance(num_items_in_batch, Tensor) else num_items_in_batch)
