"""Causal mask of Hugging Face's base models under torch.compile.

A model that is compiled materialises the mask even where it is plainly causal (under torch 2.11 always, later if it
has no cache), since the checks that omit it read values on the host. With a mask, `scaled_dot_product_attention` can
use neither its flash kernel nor grouped queries, and computes the masked half.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from kernelwright.models.patching.closures import collect_names, rebind

MASK_FUNCTION = "create_causal_mask"
MASK_INPUTS = ("attention_mask", "position_ids", "past_key_values", "cache", "cache_position")
"""Arguments of a base model's forward on which the mask depends."""
MASK_ARGUMENTS = {"config", "inputs_embeds", "input_embeds", *MASK_INPUTS}
"""Keywords of a mask that is plainly causal if the model got none of MASK_INPUTS."""


def match_mask(module: nn.Module) -> Callable[..., Any] | None:
    """A forward that omits a plainly causal mask under torch.compile; None if the module creates no mask."""
    return _omit_mask(type(module).forward)


@functools.cache
def _omit_mask(original: Any) -> Callable[..., Any] | None:
    if MASK_FUNCTION not in collect_names(original):
        return None
    creators: list[Any] = []

    def create_mask(*args: Any, **kwargs: Any) -> Any:
        is_plain = not args and not any(kwargs[name] is not None for name in kwargs.keys() - MASK_ARGUMENTS)
        return None if is_plain else creators[0](*args, **kwargs)

    rebound = rebind(
        original, MASK_FUNCTION, lambda creator: callable(creator) and not creators.append(creator), create_mask
    )
    if rebound is None:
        return None
    positions = {name: i - 1 for i, name in enumerate(inspect.signature(original).parameters) if name in MASK_INPUTS}

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = [kwargs.get(name) for name in MASK_INPUTS]
        inputs += [args[position] for position in positions.values() if position < len(args)]
        is_plain = all(one is None for one in inputs) and _has_causal_attention(self.config)
        run = rebound if torch.compiler.is_compiling() and is_plain else original
        return run(self, *args, **kwargs)

    return forward


def _has_causal_attention(config: Any) -> bool:
    """Whether attention without a mask is causal."""
    return getattr(config, "_attn_implementation", None) == "sdpa" and getattr(config, "is_causal", True)
