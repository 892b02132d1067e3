"""Causal loss fused with the last linear layer of a model, so that training stores no logits.

The model's own forward runs with a view of the model, in which the last layer returns None and keeps its input, and
the loss is computed from that input in chunks of rows. Whether nothing but a soft cap happens between layer and loss
is tested on random logits before.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Proxy
from torch.fx.proxy import GraphAppendingTracer

from kernelwright.kernels.losses.linear import linear_cross_entropy
from kernelwright.models.patching.loss import LOSS_ATTRIBUTE, causal_loss, reduce_causal_loss
from kernelwright.models.patching.probing import ROWS, is_close, seeded_randn
from kernelwright.models.patching.view import View

SOFTCAP_ATTRIBUTE = "final_logit_softcapping"
"""Soft cap of the logits in the configuration of Gemma 2 and later."""


def match_head(module: nn.Module) -> Callable[..., Any] | str:
    """A forward of a causal model that computes the loss without logits; the reason if there is none."""
    if "forward" in vars(module):
        return "its forward has been replaced on the instance"
    parameters = list(inspect.signature(type(module).forward).parameters)
    if "labels" not in parameters:
        return "its forward has no parameter labels"
    names = [name for name, child in module.named_children() if _is_linear(child)]
    head_name = next((name for name in names if _passes_logits_to_loss(module, name)), None)
    if head_name is None:
        return "its loss is not that of the result of one linear layer"
    return _make_forward(type(module), head_name, parameters.index("labels") - 1)


@functools.cache
def _make_forward(original: Any, head_name: str, labels_position: int) -> Any:
    """Cached, so that models of one class stay in one class."""

    @functools.wraps(original.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        labels = kwargs.get("labels", args[labels_position] if len(args) > labels_position else None)
        head = getattr(self, head_name)
        is_ours = vars(self).get("_loss_function") is causal_loss
        if labels is None or not (self.training and is_ours and _is_linear(head)):
            return original.forward(self, *args, **kwargs)
        inputs, softcap = [], _softcap(self)

        def keep_input(hidden: Tensor) -> None:
            inputs.append(hidden)

        def compute_loss(logits: None, labels: Tensor | None, *_: Any, **options: Any) -> Tensor:
            return head_loss(inputs[-1], head.weight, head.bias, labels, softcap=softcap, **options)

        return original.forward(_replace_head(self, head_name, keep_input, compute_loss), *args, **kwargs)

    return forward


def head_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor | None,
    *,
    softcap: float | None = None,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """`causal_loss` of `linear(hidden, weight, bias)`, under autocast in its dtype.

    Args:
        hidden: (B, S, K).
        weight: (N, K).
        softcap: of the logits; None for none.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = hidden.to(dtype), weight.to(dtype)

    def compute(target: Tensor, reduction: Any) -> Tensor:
        rows, options = hidden.reshape(-1, hidden.shape[-1]), {"ignore_index": ignore_index, "reduction": reduction}
        return linear_cross_entropy(rows, weight, target, bias, softcap=softcap or 0.0, **options)

    return reduce_causal_loss(compute, labels, shift_labels, num_items_in_batch, ignore_index, hidden.device)


def _is_linear(module: Any) -> bool:
    """Whether a layer computes what nn.Linear does, and no hook sees its input or result."""
    has_hooks = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    return type(module).forward is nn.Linear.forward and not has_hooks


def _softcap(model: Any) -> float | None:
    return getattr(getattr(model, "config", None), SOFTCAP_ATTRIBUTE, None)


def _replace_head(model: Any, head_name: str, head: Any, loss: Any) -> View:
    """A view of a model with another head and loss, and without soft cap."""
    replaced = {head_name: head, LOSS_ATTRIBUTE: loss}
    if _softcap(model) is not None:
        replaced["config"] = View(model.config, {SOFTCAP_ATTRIBUTE: None})
    return View(model, replaced)


@torch.no_grad()
def _passes_logits_to_loss(module: nn.Module, head_name: str) -> bool:
    """Whether a model's loss gets its head's result, soft-capped or unchanged, and the model returns that loss."""
    logits, softcap = seeded_randn(1, ROWS, 5), _softcap(module)
    try:
        capped, is_returned = _probe_loss(View(module, {}), module, head_name, logits)
        expected = logits if softcap is None else softcap * torch.tanh(logits / softcap)
        without_logits = _probe_loss(_replace_head(module, head_name, None, None), module, head_name, None)
        return is_returned and is_close(capped, expected) and without_logits == (None, True)
    except Exception:  # it computes something else with the logits, or has another signature
        return False


def _probe_loss(view: View, module: nn.Module, head_name: str, logits: Tensor | None) -> tuple[Any, bool]:
    """What a model passes to its loss if its head returns `logits`, and whether it returns the loss.

    The other modules are symbols, so that they need neither weights nor time.
    """
    graph, received, loss = Graph(), [], torch.zeros(())
    symbol = Proxy(graph.placeholder("symbol"), GraphAppendingTracer(graph))

    def compute_loss(logits: Any, *_: Any, **__: Any) -> Tensor:
        received.append(logits)
        return loss

    replaced = dict.fromkeys((name for name, _ in module.named_children()), symbol)
    replaced |= view._replaced | {head_name: lambda hidden: logits, LOSS_ATTRIBUTE: compute_loss}
    result: Any = type(module).forward(View(module, replaced), input_ids=symbol, labels=symbol)  # pyright: ignore
    return received[0], len(received) == 1 and result.loss is loss and result.logits is received[0]
