"""A Dynamo graph captured in a CUDA graph, so that a call launches once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.utils import _pytree as pytree

from kernelwright.compiler.cuda_graph import end_capture

TORCH_NAMESPACES = ("aten", "prims", "prim", "torchvision")
PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
STATIC_ADDRESS = "_dynamo_static_input_type"
"""Attribute of a tensor that Dynamo guards by its identity: a buffer of a module."""


class GraphReplay:
    """Replays a function of tensors that was captured for inputs of one layout.

    Parameters and buffers are read in place, other inputs copied into the graph's memory, results copied out of it. A
    call that differs from the captured one runs the function itself.

    Args:
        function: called as `function(*args)`, twice by the constructor; without gradients, and without any effect.
        args: inputs like those of all calls.
    Raises:
        RuntimeError, ValueError: the function cannot be captured, or replayed for inputs like these.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        if not all(map(_is_plain, args)):
            raise ValueError("an input is on the host, or a tensor of another kind")
        self.function, self._lock = function, threading.Lock()
        self._stream, self._graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
        with torch.inference_mode(False), torch.no_grad():
            self._static = [arg if _has_static_address(arg) else _copy_of(arg) for arg in args]
            self._addresses = [arg.data_ptr() if _has_static_address(arg) else None for arg in args]
            self._copied = [index for index, arg in enumerate(args) if self._static[index] is not arg]
            result = self._capture()
        self._results, self._structure = pytree.tree_flatten(result)
        storages = [_storage(one) for one in self._results if isinstance(one, torch.Tensor)]
        inputs = {_storage(one) for one in self._static if isinstance(one, torch.Tensor)}
        if len({*storages}) < len(storages) or inputs & {*storages}:
            raise ValueError("a result shares the memory of another one or of an input")

    def __call__(self, *args: Any) -> Any:
        """Run the function: a replay if the call is like the captured one."""
        if not self._fits(args) or not self._lock.acquire(blocking=False):
            return self.function(*args)
        try:
            for index in self._copied:
                self._static[index].copy_(args[index])
            self._graph.replay()
            return pytree.tree_unflatten([_copy_of(one) for one in self._results], self._structure)
        finally:
            self._lock.release()

    def _capture(self) -> Any:
        self.function(*self._static)  # libraries initialise themselves in their first call
        try:
            with torch.cuda.graph(self._graph):
                return self.function(*self._static)
        except BaseException:
            with suppress(RuntimeError):
                end_capture()
            raise

    def _fits(self, args: Sequence[Any]) -> bool:
        if torch.cuda.is_current_stream_capturing() or torch.cuda.current_stream() != self._stream:
            return False
        return all(map(_is_like, args, self._static, self._addresses))


def has_only_torch_operators(module: fx.GraphModule) -> bool:
    """Whether a Dynamo graph calls operators of torch alone: others may do more than to compute tensors."""
    return all(_is_of_torch(node.target) for node in module.graph.nodes if node.op == "call_function") and not any(
        node.op == "call_module" for node in module.graph.nodes
    )


def _is_of_torch(target: Any) -> bool:
    if isinstance(target, HigherOrderOperator):
        return False
    if isinstance(target, OpOverload | OpOverloadPacket):
        return str(target).partition(".")[0] in TORCH_NAMESPACES
    package = (getattr(target, "__module__", None) or "torch").partition(".")[0]
    return package in ("torch", "_operator", "math", "builtins")


def _has_static_address(value: Any) -> bool:
    return isinstance(value, torch.nn.Parameter) or hasattr(value, STATIC_ADDRESS)


def _is_plain(value: Any) -> bool:
    """Whether kernels read an input from the GPU's memory alone: they get the value of a number on the host itself."""
    if not isinstance(value, torch.Tensor):
        return True
    return value.is_cuda and value.layout is torch.strided and type(value) in PLAIN_TYPES


def _is_like(value: Any, static: Any, address: int | None) -> bool:
    """Whether an input is the parameter, or has the layout or the value, that was captured."""
    if address is not None:
        return value is static and value.data_ptr() == address
    if not isinstance(static, torch.Tensor):
        return type(value) is type(static) and value == static
    return (
        type(value) in PLAIN_TYPES
        and value.dtype is static.dtype
        and value.device == static.device
        and value.shape == static.shape
        and value.stride() == static.stride()
    )


def _copy_of(value: Any) -> Any:
    """A tensor of the same layout with the same values; what is no tensor is the same in every call."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
