"""Replacement forwards of norms and gated MLPs, for modules whose own forward computes the same."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from kernelwright.kernels.activations.op import activation
from kernelwright.kernels.activations.reference import FORMULAS
from kernelwright.kernels.norms import reference as norms
from kernelwright.kernels.norms.op import rms_norm
from kernelwright.models.patching.probing import ROWS, is_close, seeded_randn

GATED_KINDS = ("silu", "gelu_tanh", "gelu")


def match_norm(module: nn.Module) -> Callable[..., Any] | str | None:
    """A forward for an RMSNorm; the reason if only the class name matches; None for any other module."""
    if not type(module).__name__.endswith("RMSNorm"):
        return None
    eps_name = "variance_epsilon" if hasattr(module, "variance_epsilon") else "eps"
    if list(module.state_dict()) != ["weight"] or not isinstance(getattr(module, eps_name, None), float):
        return "it must have a weight, no other parameter, and a float eps or variance_epsilon"
    weight: Any = module.weight
    if weight.dim() != 1 or not weight.numel():
        return f"its weight is {tuple(weight.shape)}; it must be (N,), N > 0"
    options = _detect_norm(module, getattr(module, eps_name))
    return "it does not compute RMSNorm" if options is None else _make_norm_forward(type(module), eps_name, *options)


@functools.cache
def _make_norm_forward(original: Any, eps_name: str, offset: float, cast_first: bool) -> Any:
    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        if cast_first and self.weight.dtype != hidden_states.dtype:  # the result has the wider dtype
            return original.forward(self, hidden_states)
        eps = getattr(self, eps_name)
        return rms_norm(hidden_states, self.weight, eps=eps, offset=offset, cast_first=cast_first)

    return forward


@torch.no_grad()
def _detect_norm(module: Any, eps: float) -> tuple[float, bool] | None:
    """The weight offset of a norm and whether it rounds before multiplying by the weight; None if it is not RMSNorm."""
    run, weight = type(module).forward, seeded_randn(module.weight.numel())
    x = seeded_randn(ROWS, weight.numel())
    try:
        trial = copy.deepcopy(module)
        trial.weight = nn.Parameter(weight)
        y = run(trial, x)
        for offset in (0.0, 1.0):
            if is_close(y, norms.norm(x, weight, eps=eps, offset=offset)):
                return offset, _casts_first(run, trial, x.bfloat16(), eps, offset)
    except Exception:  # another signature
        return None
    return None


def _casts_first(run: Any, trial: Any, x: Tensor, eps: float, offset: float) -> bool:
    trial.weight = nn.Parameter(trial.weight.bfloat16())
    scale, row = trial.weight.float() + offset, norms.norm(x, eps=eps).float()
    y, cast_last = run(trial, x).float(), (row * scale).bfloat16()
    cast_first = (row.bfloat16().float() * scale).bfloat16()
    return bool((y != cast_first).sum() < (y != cast_last).sum())


@torch.no_grad()
def match_gated_mlp(module: nn.Module) -> Callable[..., Any] | str | None:
    """A forward for SwiGLU or GeGLU; the reason if a module has the three projections but computes something else;
    else None."""
    if not all(isinstance(getattr(module, f"{name}_proj", None), nn.Module) for name in ("gate", "up", "down")):
        return None
    x = torch.linspace(-8, 8, 999, dtype=torch.float32, device="cpu")
    projections = {"gate_proj": lambda x: x - 0.5, "up_proj": lambda x: 1.0 + x.sin(), "down_proj": lambda x: 2.0 * x}
    try:
        y = type(module).forward(SimpleNamespace(act_fn=module.act_fn, **projections), x)  # pyright: ignore
        expected = {kind: 2.0 * FORMULAS[kind](x - 0.5) * (1.0 + x.sin()) for kind in GATED_KINDS}
        kind = next((kind for kind, y_kind in expected.items() if is_close(y, y_kind)), None)
    except Exception:  # the forward uses other attributes
        kind = None
    return (
        f"it is not down_proj(act_fn(gate_proj(x)) * up_proj(x)) with {' or '.join(GATED_KINDS)}"
        if kind is None
        else _make_gated_forward(kind)
    )


@functools.cache
def _make_gated_forward(kind: str) -> Any:
    def forward(self: Any, x: Tensor) -> Tensor:
        return self.down_proj(activation(self.gate_proj(x), self.up_proj(x), kind=kind, cast_first=True))

    return forward
