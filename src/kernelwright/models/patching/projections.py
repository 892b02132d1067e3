"""Linear layers of one input, such as q_proj, k_proj and v_proj, with one sum for the gradient of that input.

Autograd computes one product for each layer and adds the results in separate kernels, each of which reads and writes
the whole gradient twice. Here every product after the first is added by the product's own kernel. The sum is rounded
to its dtype after each product; autograd rounds each product as well.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernelwright.kernels.operators import is_plain_tensor, is_transformed
from kernelwright.models.patching.hooks import has_plain_parameters
from kernelwright.models.patching.probing import ROWS, call_forward, seeded_randn
from kernelwright.models.patching.subclasses import replace_attributes
from kernelwright.models.patching.view import CallView

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


def match_projections(module: nn.Module) -> Callable[..., Any] | None:
    """Makes a module's forward apply its projections together; None if it has none, if they are not exactly nn.Linear,
    or if it applies them to different inputs."""
    for names in GROUPS:
        if all(type(getattr(module, name, None)) is nn.Linear for name in names) and _share_input(module, names):
            return _share_projections(names)
    return None


@functools.cache
def _share_projections(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """Cached, so that modules of one class stay in one class."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_transformed() or not torch.is_grad_enabled():
                return original(self, *args, **kwargs)
            shared = SharedInput({name: getattr(self, name) for name in names})
            return original(replace_attributes(self, shared.views()), *args, **kwargs)

        return forward

    return wrap


class SharedInput:
    """Layers by name, all of which are computed at the first call of one of them.

    A layer that is called with another tensor than the first runs by itself, as do all if one is not exactly
    nn.Linear, has hooks, or under autocast, whose casts of the input have gradients of a wider dtype.
    """

    def __init__(self, layers: dict[str, Any]) -> None:
        self._layers, self._input, self._results = layers, None, {}

    def views(self) -> dict[str, CallView]:
        """The layers by name, each with `project` as its call."""
        return {name: CallView(one, functools.partial(self.project, name)) for name, one in self._layers.items()}

    def project(self, name: str, x: Tensor) -> Tensor:
        """The result of a layer: (..., K) to (..., N)."""
        if self._input is None:
            self._input = x
            self._results = self._project_all(x) if self._can_share(x) else {}
        result = self._results.pop(name, None) if x is self._input else None
        return self._layers[name](x) if result is None else result

    def _can_share(self, x: Any) -> bool:
        is_plain = isinstance(x, Tensor) and is_plain_tensor(x, False) and x.requires_grad
        return (
            is_plain
            and not torch.is_autocast_enabled(x.device.type)
            and all(type(one) is nn.Linear and has_plain_parameters(one) for one in self._layers.values())
        )

    def _project_all(self, x: Tensor) -> dict[str, Tensor]:
        layers = self._layers.values()
        results = _SharedLinear.apply(x, *(one.weight for one in layers), *(one.bias for one in layers))
        return dict(zip(self._layers, results, strict=True))


class _SharedLinear(torch.autograd.Function):
    """Linear layers of one input: (x, *weights, *biases), with None for no bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Any) -> tuple[Tensor, ...]:
        num_layers = len(parameters) // 2
        weights, biases = parameters[:num_layers], parameters[num_layers:]
        ctx.save_for_backward(x, *weights)
        ctx.set_materialize_grads(False)
        return tuple(F.linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad[0], ctx.needs_input_grad[1 : 1 + len(weights)]
        needs_bias = ctx.needs_input_grad[1 + len(weights) :]
        rows = x.reshape(-1, x.shape[-1])
        dys = [None if dy is None else dy.reshape(-1, dy.shape[-1]) for dy in gradients]
        dx = _sum_products(dys, weights) if needs_x else None
        return (
            None if dx is None else dx.view(x.shape),
            *_map_wanted(lambda dy: dy.t() @ rows, dys, needs_weight),
            *_map_wanted(lambda dy: dy.sum(0), dys, needs_bias),
        )


def _map_wanted(
    compute: Callable[[Tensor], Tensor], dys: list[Tensor | None], is_wanted: Sequence[bool]
) -> list[Tensor | None]:
    """A gradient for each layer, None where it is not wanted or the layer's result was not used."""
    return [compute(dy) if dy is not None and wanted else None for dy, wanted in zip(dys, is_wanted, strict=True)]


def _sum_products(dys: list[Tensor | None], weights: list[Tensor]) -> Tensor | None:
    """The sum of dy @ weight over the layers that have a gradient: (M, K)."""
    total = None
    for dy, weight in zip(dys, weights, strict=True):
        if dy is not None:
            total = dy @ weight if total is None else total.addmm_(dy, weight)
    return total


@torch.no_grad()
def _share_input(module: Any, names: tuple[str, ...]) -> bool:
    """Whether a module's forward applies each of the layers once to its own first argument."""
    called: list[str] = []
    x = seeded_randn(1, ROWS, getattr(module, names[0]).in_features)

    def record(name: str, rows: Tensor) -> Tensor:
        if rows is not x:
            raise _AllCalledError
        called.append(name)
        if len(called) == len(names):
            raise _AllCalledError
        return rows.new_zeros(*rows.shape[:-1], getattr(module, name).out_features)

    others = {name: lambda x, *_, **__: x for name, _ in module.named_children()}
    recorders = {name: functools.partial(record, name) for name in names}
    with contextlib.suppress(Exception):  # by the last recorder, or it has another signature
        call_forward(replace_attributes(module, others | recorders), x)
    return sorted(called) == sorted(names)


class _AllCalledError(Exception):
    """Ends a forward after its last projection: what follows is of no interest."""
