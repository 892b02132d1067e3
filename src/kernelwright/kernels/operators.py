"""Kernels as operators of torch: seen whole by torch.compile, differentiated by autograd, called directly otherwise."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack  # pyright: ignore
from torch.autograd import forward_ad

from kernelwright.core.errors import UsageError

TORCH_LIBRARY = torch.library.Library("kernelwright", "FRAGMENT")
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OP_IMPLS: dict[str, Callable[..., Any]] = {}
"""What each operator runs, by name: for a mode that calls it without torch's dispatcher."""
_PLAIN_TENSOR_TYPES = (Tensor, torch.nn.Parameter)


class _FastPath(threading.local):
    """
    Attributes:
        enabled: a function runs whose caller has found that nobody traces or transforms, and that no tensor of it is
            another than it seems or wants a gradient: what it calls need not find that out again.
    """

    enabled: bool = False


FAST_PATH = _FastPath()


def on_fast_path() -> bool:
    """Whether that is known; torch's compiler, which cannot trace what is of a thread, does not come to it."""
    return not torch.compiler.is_compiling() and FAST_PATH.enabled


class ShapeError(UsageError):
    """Tensors whose shapes or dtypes do not go together, or that no kernel takes."""

    code = "wrong-shape"
    default_next = "kw kernels lists what each takes"


class Operator:
    """A kernel under torch.ops.kernelwright. A call on plain tensors, by nobody who traces or transforms, goes past
    torch's dispatcher, which costs several times what a launch does.

    Args:
        schema: as torch writes one, `name(Tensor x, ...) -> ...`.
        impl: computes it on tensors of any device that the kernel runs on.
        fake: gives empty results of the same shapes and dtypes.
        backward: of (ctx, *gradients of the results), the gradients of the arguments; of an operator that computes
            gradients None: it has none itself, and says so.
        setup_context: of (ctx, inputs, output) by name, writes into ctx what `backward` needs.
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

        def forward(ctx: Any, *inputs: Any) -> Any:  # a `setup_context` of its own has torch inspect signatures
            output = impl(*inputs)
            setup_context(ctx, inputs, output)
            return output

        parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self._impl, self._dispatched = impl, getattr(torch.ops.kernelwright, name)
        self._autograd_apply = type(name, (torch.autograd.Function,), parts).apply

    def __call__(self, *arguments: Any) -> Any:
        if on_fast_path():
            return self._impl(*arguments)
        tensors = [one for one in arguments if isinstance(one, Tensor)]
        if not is_plain_eager() or not all(is_plain_tensor(one, False) for one in tensors):
            return self._dispatched(*arguments)
        asks = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
        return self._autograd_apply(*arguments) if asks else self._impl(*arguments)


def _make_unsupported_backward(name: str) -> Callable[..., Any]:
    """Instead of a gradient of a gradient, which torch would take for 0."""

    def refuse(ctx: Any, *_: Any) -> None:
        raise UsageError(f"{name} has no second derivative", next="differentiate torch's own operator twice")

    return refuse


def raise_if_forward_mode() -> None:
    """
    Raises:
        UsageError: somebody wants gradients forward, which torch would take for 0.
    """
    if forward_ad._current_level >= 0:
        raise UsageError("these kernels have no forward-mode gradients", next="use torch's own operator under jvp")


def can_skip_dispatcher(*tensors: Tensor | None) -> bool:
    """Whether the kernel may be launched without asking torch's dispatcher, which costs as much as a launch: nobody
    wants gradients, traces, transforms, or looks on.

    Raises:
        UsageError: somebody wants gradients forward.
    """
    if on_fast_path():
        return True
    if not is_plain_eager():
        return False
    asks = torch.is_grad_enabled()
    return all(is_plain_tensor(tensor, asks) for tensor in tensors if tensor is not None)


def is_plain_eager() -> bool:
    """Whether nobody traces, transforms, or looks on.

    Raises:
        UsageError: somebody wants gradients forward.
    """
    if torch.compiler.is_compiling():
        return False
    raise_if_forward_mode()
    return not (
        peek_interpreter_stack() is not None or torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state()
    )


def is_plain_tensor(tensor: Tensor, grad_enabled: bool) -> bool:
    """Whether it is what it seems, memory of a device, and, where somebody asks for gradients, wants none."""
    return (
        type(tensor) in _PLAIN_TENSOR_TYPES
        and not (grad_enabled and tensor.requires_grad)
        and not (tensor.is_neg() or tensor.is_meta or is_legacy_batchedtensor(tensor))
    )


def require(condition: bool, message: Callable[[], str]) -> None:
    """The message is made where it is needed: torch.compile cannot write symbols into a text.

    Raises:
        ShapeError: it does not hold.
    """
    if not condition:
        raise ShapeError(message())


def as_contiguous(tensor: Tensor | None) -> Tensor | None:
    """Its elements one after another."""
    return None if tensor is None else tensor.contiguous()


def require_tensor(
    name: str, tensor: Tensor | None, shape: Sequence[int] | None = None, dtypes: Sequence[torch.dtype] = DTYPES
) -> None:
    """
    Raises:
        ShapeError: it is of another shape than this, or of a dtype that no kernel here reads; None fits.
    """
    if tensor is None:
        return
    if tensor.dtype not in dtypes:
        kinds = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ShapeError(f"{name} is {tensor.dtype}; it must be {kinds}")
    if shape is not None and tensor.shape != shape:
        raise ShapeError(f"{name} is {tuple(tensor.shape)}; it must be {tuple(shape)}")
