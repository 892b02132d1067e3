"""Causal mask of Hugging Face's base models under torch.compile.

A model that is compiled materialises the mask even where it is plainly causal (under torch 2.11 always, later if it
has no cache), since the checks that omit it read values on the host. With a mask, `scaled_dot_product_attention` can
use neither its flash kernel nor grouped queries, and computes the masked half.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kernelwright.models.patching.closures import collect_names, collect_strings, rebind

MASK_FUNCTION = "create_causal_mask"
MASK_INPUTS = ("attention_mask", "position_ids", "past_key_values", "cache", "cache_position")
"""Arguments of a base model's forward, by keyword, on which the mask depends."""
OTHER_PATTERNS = {"or_mask_function", "and_mask_function", "block_sequence_ids"}
"""Keywords of a mask that is not plainly causal."""


def match_mask(module: nn.Module) -> Callable[..., Any] | None:
    """A forward that omits a plainly causal mask under torch.compile; None if the module creates no mask."""
    return _omit_mask(type(module).forward)


@functools.cache
def _omit_mask(original: Any) -> Callable[..., Any] | None:
    if MASK_FUNCTION not in collect_names(original) or OTHER_PATTERNS & collect_strings(original):
        return None
    rebound = rebind(original, MASK_FUNCTION, callable, create_no_mask)
    if rebound is None:
        return None

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = (*args[1:], *(kwargs.get(name) for name in MASK_INPUTS))  # the first argument is input_ids
        is_plain = all(one is None for one in inputs) and _has_causal_attention(self.config)
        run = rebound if torch.compiler.is_compiling() and is_plain else original
        return run(self, *args, **kwargs)

    return forward


def create_no_mask(*_: Any, **__: Any) -> None:
    """No mask. Without a closure: torch.compile looks for the closure of a rebound name in the original function."""


def _has_causal_attention(config: Any) -> bool:
    """Whether attention without a mask is causal."""
    return getattr(config, "_attn_implementation", None) == "sdpa" and getattr(config, "is_causal", True)
