"""A program as one graph of core ATen operators, with nothing hidden: parameters, buffers and mutations by name."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._decomp import get_decompositions

from kernelwright.core.errors import ProblemError

aten = torch.ops.aten
TAKEN_APART = (
    aten._softmax, aten._log_softmax, aten.native_layer_norm, aten.native_group_norm, aten.gelu, aten.leaky_relu,
    aten.elu, aten.hardtanh, aten.softplus, aten.logsumexp, aten.std, aten.celu, aten.selu, aten.linalg_vector_norm,
    aten.addcmul, aten.addcdiv, aten.lerp,
)  # fmt: skip
"""Operators of core ATen that are several steps of a region."""
KEPT_WHOLE = (aten.var, aten.var_mean, aten.mean)
"""What torch would take apart into operators that hide what is meant."""


@dataclass(frozen=True)
class Captured:
    """`module` takes and returns flat tensors.

    Attributes:
        sources: for each placeholder, (kind, name): `parameter`, `buffer`, `constant` or `argument` and its place.
        results: for each output, (kind, name): `output`, `buffer` or `argument` that it replaces.
        signature: what torch.export knows, for calls with trees of arguments.
    """

    module: fx.GraphModule
    exported: torch.export.ExportedProgram


def capture(program: Callable[..., Any], args: Any, kwargs: Any) -> Captured:
    """The graph of one call.

    Raises:
        ProblemError: the program cannot be captured whole; `where` is the line that breaks it.
    """
    module = program if isinstance(program, torch.nn.Module) else _AsModule(program)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.export.export(module, tuple(args), dict(kwargs), strict=False)
            exported = exported.run_decompositions(_table())
    except Exception as fault:
        raise ProblemError(f"torch.export cannot capture it: {fault}", next="--compile") from fault
    return Captured(exported.graph_module, exported)


class _AsModule(torch.nn.Module):
    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.program = program

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*args, **kwargs)


@functools.cache
def _table() -> dict[Any, Any]:
    table = dict(torch.export.default_decompositions())
    table |= get_decompositions(list(TAKEN_APART))
    kept = {overload for packet in KEPT_WHOLE for overload in (getattr(packet, n) for n in packet.overloads())}
    return {operator: rule for operator, rule in table.items() if operator not in kept}
