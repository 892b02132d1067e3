"""Recurrences as one operator each while a program is captured: torch 2.11 unrolls their time steps, 2.13 does not.

`torch.nn.LSTM`, `GRU` and `RNN` call functions of `torch._VF`. During the capture these call custom operators with the
schemas of torch's own, and afterwards the graphs are given torch's operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import fx

NAMESPACE = "kernelwright_capture"
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")
RECURRENCES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
"""Number of gates by the operator."""
NUM_ARGUMENTS = 9


def _empty_results(name: str, *args: Any) -> tuple[torch.Tensor, ...]:
    """Uninitialised results of a recurrence, with torch's shapes and strides: batch-first output is a transpose."""
    x, hx, _, _, _, _, _, bidirectional, batch_first = args
    states = list(hx) if name == "lstm" else [hx]
    num_steps, batch = x.shape[:2][:: -1 if batch_first else 1]
    output = x.new_empty((num_steps, batch, states[0].shape[-1] * (1 + bidirectional)))
    return output.transpose(0, 1) if batch_first else output, *(x.new_empty(state.shape) for state in states)


def _define(name: str) -> torch._ops.OpOverload:
    """Define the operator that stands for one of torch's, and return it."""
    own = _torch_operator(name)
    schema = str(own._schema).partition("(")[2]
    _LIBRARY.define(f"{name}({schema}")
    _LIBRARY.impl(name, own, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", partial(_empty_results, name), lib=_LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _torch_operator(name: str) -> torch._ops.OpOverload:
    return getattr(torch.ops.aten, name).input


OPERATORS = {name: _define(name) for name in RECURRENCES}
TORCH_OPERATORS = {operator: _torch_operator(name) for name, operator in OPERATORS.items()}


@contextmanager
def kept_recurrences() -> Iterator[None]:
    """Within the block, recurrences that modules of torch call become one node each.

    Packed sequences, projections, dropout, autocast and calls whose gradient is needed stay with torch's functions.
    """
    functions: Any = vars(torch._VF)
    before = {name: functions[name] for name in RECURRENCES if name in functions}
    try:
        functions |= {name: _replacement(name, getattr(torch._VF, name)) for name in RECURRENCES}
        yield
    finally:
        for name in RECURRENCES:
            del functions[name]
        functions.update(before)


def _replacement(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        is_plain = not kwargs and _is_plain(name, args)
        return (OPERATORS[name] if is_plain else function)(*args, **kwargs)

    return call


def _is_plain(name: str, args: Sequence[Any]) -> bool:
    """Whether a call is of the overload for tensors, and computes nothing but the recurrence."""
    if len(args) != NUM_ARGUMENTS or not isinstance(args[2], (list, tuple)):
        return False  # a packed sequence
    x, hx, params, has_biases, num_layers, dropout, train, bidirectional, _ = args
    states = list(hx) if name == "lstm" else [hx]
    tensors = [x, *states, *params]
    if not all(isinstance(one, torch.Tensor) and one.dtype == x.dtype for one in tensors):
        return False
    is_projected = len(params) != num_layers * (1 + bidirectional) * (4 if has_biases else 2)
    needs_gradient = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
    drops = train and dropout and num_layers > 1
    is_autocast = any(map(torch.is_autocast_enabled, ("cpu", "cuda")))
    return not (is_projected or needs_gradient or drops or is_autocast)


def restore_recurrences(modules: Iterable[fx.GraphModule]) -> None:
    """Give graphs torch's operators in place of those of the capture."""
    for module in modules:
        for part in module.modules():
            if isinstance(part, fx.GraphModule):
                for node in part.graph.nodes:
                    node.target = TORCH_OPERATORS.get(node.target, node.target)
                part.recompile()
