"""Kernels as torch operators: opaque to torch.compile, differentiable by autograd, called directly in plain eager
mode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _get_tracing_state, _len_torch_dispatch_stack  # pyright: ignore
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack  # pyright: ignore
from torch.autograd import forward_ad

from kernelwright.core.errors import UsageError

TORCH_LIBRARY = torch.library.Library("kernelwright", "FRAGMENT")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OP_IMPLS: dict[str, Callable[..., Any]] = {}
"""Implementation of each operator by name, for a dispatch mode that calls it without torch's dispatcher."""
_PLAIN_TENSOR_TYPES = (Tensor, torch.nn.Parameter)


class _FastPath(threading.local):
    """Thread-local state of the fast path.

    Attributes:
        enabled: the caller has already checked for plain eager mode and plain tensors that need no gradient, so
            nested calls skip these checks.
    """

    enabled: bool = False


FAST_PATH = _FastPath()


def on_fast_path() -> bool:
    """Whether the fast path is enabled; False under torch.compile, which cannot trace thread-local state."""
    return not torch.compiler.is_compiling() and FAST_PATH.enabled


class ShapeError(UsageError):
    """Shapes or dtypes do not match, or no kernel supports them."""

    code = "wrong-shape"
    default_next = "kw kernels lists the limits of each kernel"


class Operator:
    """A kernel under torch.ops.kernelwright.

    A call in plain eager mode on plain tensors bypasses torch's dispatcher, which costs several times a launch.

    Args:
        schema: a torch schema, `name(Tensor x, ...) -> ...`.
        impl: the implementation on the kernels' device.
        fake: returns empty results with the right shapes and dtypes.
        backward: of (ctx, *gradients of the results), returns the gradients of the arguments; None for an operator
            that computes gradients and raises if it is differentiated again.
        setup_context: of (ctx, inputs, output) by keyword, saves in ctx what `backward` needs.
    """

    def __init__(
        self,
        schema: str,
        impl: Callable[..., Any],
        fake: Callable[..., Any],
        backward: Callable[..., Any] | None = None,
        setup_context: Callable[..., None] = lambda ctx, inputs, output: None,
    ) -> None:
        name = schema.partition("(")[0]
        TORCH_LIBRARY.define(schema, tags=(torch.Tag.needs_fixed_stride_order,))
        TORCH_LIBRARY.impl(name, impl, "CompositeExplicitAutograd")
        OP_IMPLS[name] = impl
        full = f"kernelwright::{name}"
        torch.library.register_fake(full, fake, lib=TORCH_LIBRARY)
        backward = backward or _make_unsupported_backward(full)
        torch.library.register_autograd(full, backward, setup_context=setup_context, lib=TORCH_LIBRARY)

        def forward(
            ctx: Any, *inputs: Any
        ) -> Any:  # a separate `setup_context` makes torch inspect signatures on each call
            output = impl(*inputs)
            setup_context(ctx, inputs, output)
            return output

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self._impl, self._dispatched = impl, getattr(torch.ops.kernelwright, name)
        self._autograd_apply = type(name, (torch.autograd.Function,), methods).apply

    def __call__(self, *arguments: Any) -> Any:
        if on_fast_path():
            return self._impl(*arguments)
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        if not is_plain_eager() or not all(is_plain_tensor(one, False) for one in tensors):
            return self._dispatched(*arguments)
        needs_grad = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
        return self._autograd_apply(*arguments) if needs_grad else self._impl(*arguments)


def _make_unsupported_backward(name: str) -> Callable[..., Any]:
    """A backward that raises, since torch would treat a missing second derivative as 0."""

    def raise_unsupported(ctx: Any, *_: Any) -> None:
        raise UsageError(f"{name} has no second derivative", next="differentiate torch's own operator twice")

    return raise_unsupported


def raise_if_forward_mode() -> None:
    """Raise under forward-mode differentiation, where torch would treat the missing gradients as 0.

    Raises:
        UsageError: forward mode is active.
    """
    if forward_ad._current_level >= 0:
        raise UsageError("these kernels have no forward-mode gradients", next="use torch's own operator under jvp")


def can_skip_dispatcher(*tensors: Tensor | None) -> bool:
    """Whether a kernel may be launched without torch's dispatcher, which costs as much as a launch.

    True in plain eager mode if no tensor requires a gradient.

    Raises:
        UsageError: forward-mode differentiation is active.
    """
    if torch.compiler.is_compiling():
        return False
    if FAST_PATH.enabled:
        return True
    if not _has_no_mode():
        return False
    grad_enabled = torch.is_grad_enabled()
    for tensor in tensors:  # noqa: SIM110 -- a generator would take as long as the checks
        if tensor is not None and not is_plain_tensor(tensor, grad_enabled):
            return False
    return True


def is_plain_eager() -> bool:
    """Whether there is no tracing, no functorch transform and no dispatch mode.

    Raises:
        UsageError: forward-mode differentiation is active.
    """
    return not torch.compiler.is_compiling() and _has_no_mode()


def _has_no_mode() -> bool:
    if forward_ad._current_level >= 0:
        raise_if_forward_mode()
    return not (peek_interpreter_stack() is not None or _len_torch_dispatch_stack() or _get_tracing_state())


def is_plain_tensor(tensor: Tensor, grad_enabled: bool) -> bool:
    """Whether it is a strided tensor without subclass, lazy negation or batching, and does not require a gradient
    while `grad_enabled`."""
    return (
        type(tensor) in _PLAIN_TENSOR_TYPES
        and not (grad_enabled and tensor.requires_grad)
        and not (tensor.is_neg() or tensor.is_meta or is_legacy_batchedtensor(tensor))
    )


def require(condition: bool, message: Callable[[], str]) -> None:
    """Raise unless a condition holds; the message is lazy, since torch.compile cannot format symbolic sizes.

    Raises:
        ShapeError: the condition is false.
    """
    if not condition:
        raise ShapeError(message())


def as_contiguous(tensor: Tensor | None) -> Tensor | None:
    """A contiguous copy, or the tensor itself; None stays None."""
    return None if tensor is None else tensor.contiguous()


def require_tensor(
    name: str, tensor: Tensor | None, shape: Sequence[int] | None = None, dtypes: Sequence[torch.dtype] = DTYPES
) -> None:
    """Check the shape and dtype of an optional tensor.

    Raises:
        ShapeError: another shape, or a dtype that is not in `dtypes`.
    """
    if tensor is None:
        return
    if tensor.dtype not in dtypes:
        names = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ShapeError(f"{name} is {tensor.dtype}; it must be {names}")
    if shape is not None and tensor.shape != shape:
        raise ShapeError(f"{name} is {tuple(tensor.shape)}; it must be {tuple(shape)}")
