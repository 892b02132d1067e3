"""The signature by which a generated file recognises a Dynamo graph.

The source of these functions is copied into generated files: they use torch and the standard library alone.
"""

from __future__ import annotations

import hashlib
import sys

import torch
from torch.fx.node import map_arg


def sign_graph(module, inputs):
    """Digest of a Dynamo graph's operators and literals, and of the layouts of its inputs, whatever their names; None
    for a graph whose meaning depends on more: constants, functions without a name in their module, symbolic sizes,
    autocast."""
    plain = all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in inputs)
    if not plain or torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return None
    lines = [str(torch.get_default_dtype())]
    for one in inputs:
        sizes = *one.shape, *one.stride()
        if one.layout is not torch.strided or not all(type(size) is int for size in sizes):
            return None
        lines.append(f"{one.dtype} {one.device} {sizes}")
    numbers = {}
    for node in module.graph.nodes:
        target = target_name(node)
        if node.op in ("get_attr", "call_module") or "<locals>" in target:
            return None
        given = map_arg((node.args, node.kwargs), lambda read: f"%{numbers[read]}")
        lines.append(f"{node.op} {target} {given}")
        numbers[node] = len(numbers)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]


def target_name(node):
    """The name of the function or method that a node calls; empty for inputs and results."""
    if node.op != "call_function":
        return node.target if node.op == "call_method" else ""
    module, name = (getattr(node.target, key, None) for key in ("__module__", "__name__"))
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    if getattr(sys.modules.get(str(module)), str(name), None) is node.target:  # even if defined in a function
        return f"{module}.{name}"
    return f"{module}.{getattr(node.target, '__qualname__', None)}"
