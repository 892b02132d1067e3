"""Runs the host code of a program without its arithmetic: CUDA tensors are CPU tensors with untouched memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from kernelwright.kernels.operators import OP_IMPLS

_RESHAPES_IN_PLACE = ("resize_", "set_", "as_strided_", "squeeze_", "unsqueeze_", "transpose_", "t_", "detach_")


class _RedirectToCpu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        return func(*("cpu" if _is_cuda(one) else one for one in args), **kwargs)


def _is_cuda(argument: object) -> bool:
    return isinstance(argument, str | torch.device) and str(argument).startswith("cuda")


class _AllocateOnly(TorchDispatchMode):
    """Operators allocate their results without computing; operators of this package run, to record their launches."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func.namespace == "kernelwright":
            with self:
                return OP_IMPLS[func._opname](*args, **kwargs)
        written = [one.name for one in func._schema.arguments if one.alias_info and one.alias_info.is_write]
        if len(written) == 1 and len(func._schema.returns) == 1 and func._opname not in _RESHAPES_IN_PLACE:
            names = [one.name for one in func._schema.arguments]
            return dict(zip(names, args, strict=False), **kwargs)[written[0]]
        if written or any(one.alias_info for one in func._schema.returns):
            return func(*args, **kwargs)
        if "device" in kwargs:
            kwargs["device"] = torch.device("meta")
        meta_args, meta_kwargs = tree_map_only(torch.Tensor, lambda one: one.to("meta"), (args, kwargs))
        results = func(*meta_args, **meta_kwargs)
        return tree_map_only(
            torch.Tensor, lambda one: torch.empty_strided(one.size(), one.stride(), dtype=one.dtype), results
        )


@contextmanager
def dry_run() -> Iterator[None]:
    """Make factory functions and operators in the block take no time and no memory, for any size."""
    with _AllocateOnly(), _RedirectToCpu():
        yield
