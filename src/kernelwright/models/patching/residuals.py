"""Residual connections of decoder layers, added by the kernels of the norms that follow them.

A layer's own forward runs with a `ResidualStream` in place of its input. An addition to the stream is postponed until
a norm is applied, whose kernel then adds and normalizes in one pass. Backward, the gradient of the stream is added by
the kernel of the norm's gradient, also where nothing was added before the norm.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kernelwright.kernels.norms.op import rms_norm, rms_norm_with_input
from kernelwright.kernels.operators import is_plain_tensor, is_transformed
from kernelwright.models.patching.forwards import NormFormula, detect_norm
from kernelwright.models.patching.hooks import has_plain_parameters
from kernelwright.models.patching.probing import ROWS, call_forward, is_close, seeded_randn
from kernelwright.models.patching.subclasses import PatchedModule, replace_attributes, unpatched_class
from kernelwright.models.patching.view import CallView

ATTENTION, INPUT = "self_attn", "hidden_states"


class ResidualStream:
    """The running sum of a decoder layer, whose last addition is postponed.

    Any attribute is that of the sum, so that a forward may use it as a tensor; functions of torch do not accept it.
    """

    def __init__(self, total: Tensor, update: Tensor | None = None) -> None:
        self._total, self._update = total, update

    @property
    def tensor(self) -> Tensor:
        """The sum: (..., N)."""
        if self._update is not None:
            self._total, self._update = self._total + self._update, None
        return self._total

    def __add__(self, other: Any) -> Any:
        return ResidualStream(self.tensor, other) if isinstance(other, Tensor) else self.tensor + other

    __radd__ = __add__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)

    def normalize(self, norm: Any, formula: NormFormula) -> Tensor:
        """A norm of the sum, by one kernel with the addition if dtypes and shapes are equal: (..., N)."""
        options = {"offset": formula.offset, "cast_first": formula.cast_first, "eps": getattr(norm, formula.eps_name)}
        operands = [self._total] if self._update is None else [self._total, self._update]
        is_uniform = all(one.shape == self._total.shape and one.dtype == norm.weight.dtype for one in operands)
        if not is_uniform or not all(is_plain_tensor(one, False) for one in operands):
            return norm(self.tensor)
        if self._update is None:
            y, self._total = rms_norm_with_input(self._total, norm.weight, **options)
        else:
            y, self._total = rms_norm(self._update, norm.weight, residual=self._total, **options)
            self._update = None
        return y


def match_residuals(module: nn.Module) -> Callable[..., Any] | None:
    """Makes a decoder layer's forward add within norms; None if it has no attention, or no norm of its running sum."""
    if not hasattr(module, ATTENTION):
        return None
    norms = []
    for name, child in module.named_children():
        formula = detect_norm(_without_parts(child))
        if isinstance(formula, NormFormula):
            norms.append((name, formula))
    return _fuse_residuals(tuple(norms)) if _normalizes_stream(module, [name for name, _ in norms]) else None


@functools.cache
def _fuse_residuals(norms: tuple[tuple[str, NormFormula], ...]) -> Callable[[Any], Any]:
    """Cached, so that modules of one class stay in one class."""

    def wrap(original: Any) -> Any:
        @functools.wraps(original)
        def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
            x, *others = args or (kwargs.get(INPUT),)
            if is_transformed() or not torch.is_grad_enabled() or not isinstance(x, Tensor):
                return original(self, *args, **kwargs)
            kwargs = {name: value for name, value in kwargs.items() if name != INPUT}
            replaced = {name: _accept_stream(getattr(self, name), formula) for name, formula in norms}
            return _materialize(original(replace_attributes(self, replaced), ResidualStream(x), *others, **kwargs))

        return forward

    return wrap


def _accept_stream(norm: Any, formula: NormFormula) -> CallView:
    return CallView(norm, functools.partial(_apply_norm, norm, formula))


def _apply_norm(norm: Any, formula: NormFormula, x: Any) -> Tensor:
    if not isinstance(x, ResidualStream):
        return norm(x)
    is_same = isinstance(norm, formula.original) and unpatched_class(norm) is formula.original
    return x.normalize(norm, formula) if is_same and has_plain_parameters(norm) else norm(x.tensor)


def _materialize(result: Any) -> Any:
    """A layer's result with tensors in place of streams."""
    if isinstance(result, tuple):
        return tuple(map(_materialize, result))
    return result.tensor if isinstance(result, ResidualStream) else result


def _without_parts(module: nn.Module) -> nn.Module:
    is_patched = isinstance(module, PatchedModule)
    return replace_attributes(module, {}, unpatched_class(module)) if is_patched else module


@torch.no_grad()
def _normalizes_stream(module: nn.Module, norm_names: list[str]) -> bool:
    """Whether a layer's forward computes the same with a stream as input, and applies a norm to it.

    The layer's modules are functions of one tensor, so that they need neither weights nor time.
    """
    x, normalized = seeded_randn(3, ROWS, 5), []

    def normalize(scale: int, x: Any) -> Tensor:
        if isinstance(x, ResidualStream):
            normalized.append(x)
            x = x.tensor
        return scale * x

    def attend(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        return (args[0] if args else kwargs[INPUT]).sin(), None

    children: dict[str, Any] = {name: lambda x, *_, **__: x.cos() for name, _ in module.named_children()}
    children |= {name: functools.partial(normalize, 2 + i) for i, name in enumerate(norm_names)} | {ATTENTION: attend}
    layer = replace_attributes(module, children)
    try:
        expected, result = (_first(_materialize(call_forward(layer, one))) for one in (x, ResidualStream(x)))
        return bool(normalized) and is_close(result, expected)
    except Exception:  # it uses the stream in another way, or has another signature
        return False


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result
