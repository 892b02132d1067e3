"""Attention of Hugging Face's modules in training: the fastest backend of `scaled_dot_product_attention`.

The modules call one of transformers' `ALL_ATTENTION_FUNCTIONS`. In a patched module that name is bound to a view of
these functions in which "sdpa" selects a backend; the functions themselves do not change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kernelwright.kernels.operators import is_plain_tensor, is_transformed
from kernelwright.models.patching.backends import prefer_fastest
from kernelwright.models.patching.closures import collect_names, rebind

FUNCTIONS_NAME, SDPA, DEVICE_TYPE = "ALL_ATTENTION_FUNCTIONS", "sdpa", "cuda"


def match_attention(module: nn.Module) -> Callable[..., Any] | None:
    """Makes a module's forward select the backend of its attention; None if it does not call one of transformers'
    attention functions."""
    return select_backends if _can_select(type(module).forward) else None


@functools.cache
def _can_select(forward: Any) -> bool:
    return FUNCTIONS_NAME in collect_names(forward) and _rebind_functions(forward) is not None


def _rebind_functions(forward: Any) -> Any:
    return rebind(forward, FUNCTIONS_NAME, AttentionFunctions)


def select_backends(original: Any) -> Any:
    """A forward that runs SDPA on the fastest backend; the original one under torch.compile, which looks for the
    attributes of a rebound name in the original value."""
    rebound = _rebind_functions(original)

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = original if torch.compiler.is_compiling() else rebound
        return run(self, *args, **kwargs)

    return forward


class AttentionFunctions:
    """Attention functions of transformers by name, with SDPA on the fastest backend."""

    def __init__(self, functions: Any) -> None:
        self._functions = functions

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return _select_function(name, self._functions[name])

    def get_interface(self, name: str, default: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a name, as in transformers 5."""
        return _select_function(name, self._functions.get_interface(name, default))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._functions, name)


def _select_function(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    return functools.partial(run_attention, function) if name == SDPA else function


def run_attention(
    function: Callable[..., Any],
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> Any:
    """An attention function of transformers on the fastest backend of SDPA.

    torch's own selection is kept where its result is not that of another backend up to rounding (dropout draws other
    random numbers, rows whose mask is empty have no defined result), in deterministic mode, outside training, and for
    one query, as in decoding.

    Args:
        query, key, value: (B, H, S, D), as they are passed to the function.
        kwargs: further arguments of the function.
    """
    if attention_mask is not None or not _may_select(module, (query, key, value), **kwargs):
        return function(module, query, key, value, attention_mask, **kwargs)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return function(module, query, key, value, None, **kwargs)[0]

    causal = kwargs.get("is_causal"), getattr(module, "is_causal", None)
    options = (*causal, kwargs.get("scaling"), getattr(module, "num_key_value_groups", 1))
    with prefer_fastest(attend, (query, key, value), options):
        return function(module, query, key, value, None, **kwargs)


def _may_select(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    *,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    **_: Any,
) -> bool:
    """Whether another backend computes the same up to rounding, and a measurement would not be seen by a transform."""
    is_defined = not dropout and position_bias is None and not torch.are_deterministic_algorithms_enabled()
    is_step = module.training and inputs[0].shape[-2] > 1
    is_plain = all(one.device.type == DEVICE_TYPE and is_plain_tensor(one, False) for one in inputs)
    return is_step and is_defined and is_plain and not is_transformed()
