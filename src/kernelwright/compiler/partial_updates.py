"""Updates of a part of a buffer or argument, such as one position of a cache, that are made in place.

A captured graph is functional: it computes the whole new tensor from the whole old one, and copies it back at the end.
Where nothing reads the old tensor after the update, the operator's in-place form changes the part alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import fx

from kernelwright.compiler.capture.calls import GraphOutput
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.rewriting import is_alias

aten = torch.ops.aten
IN_PLACE_OPS = frozenset(
    ["index_put", "index_copy", "index_add", "index_fill", "scatter", "scatter_add", "scatter_reduce", "masked_scatter"]
)
"""Operators with an in-place form of the same arguments, named with a `_` behind it."""
SLICE_UPDATE = "slice_scatter"
"""Writes its second argument into a slice; the other arguments are those of `slice`."""


class Statement(Protocol):
    """What computes some nodes, as in `forward_codegen`."""

    @property
    def nodes(self) -> tuple[fx.Node, ...]:
        """The nodes that it computes."""
        ...

    @property
    def inputs(self) -> tuple[fx.Node, ...]:
        """The nodes that it reads."""
        ...


def find_partial_updates(statements: Sequence[Statement], outputs: Sequence[GraphOutput]) -> dict[fx.Node, fx.Node]:
    """Find the updates that can be made in place.

    An update can if all that reads the tensor before it, or a view of that, runs before it; if the program returns no
    view of the tensor before or after it; and if the result is written back to the tensor that is updated.

    Args:
        statements: in the order in which they run.
    Returns:
        By the node of an update, the node whose memory it writes: the argument or buffer, or an earlier update of it.
    """
    updates: dict[fx.Node, fx.Node] = {}
    for value, target, is_returned in outputs:
        if target is None or is_returned or not isinstance(value, fx.Node):
            continue
        chain = list(_chain_of_updates(value, target))
        versions = [target, *chain]
        if (
            chain
            and _only_written_back(versions, outputs)
            and all(_is_last_reader(old, new, statements) for old, new in zip(versions, chain, strict=False))
        ):
            updates |= dict(zip(chain, versions, strict=False))
    return updates


def in_place_call(node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """Return the operator that makes an update in place, and its arguments after the updated tensor; of the update of
    a slice, the operator that returns the slice."""
    name = op_name(node.target)
    if name == SLICE_UPDATE:
        return aten.slice.Tensor, node.args[2:]
    assert isinstance(node.target, torch._ops.OpOverload)
    return getattr(getattr(aten, f"{name}_"), node.target._overloadname), node.args[1:]


def _chain_of_updates(value: fx.Node, target: fx.Node) -> Iterator[fx.Node]:
    """The updates from a tensor to a value, the first one first; empty if there are other operators in between."""
    chain = []
    while value is not target:
        is_update = op_name(value.target) in (*IN_PLACE_OPS, SLICE_UPDATE)
        if not is_update or not isinstance(value.args[0], fx.Node) or not _same_memory(value, target):
            return
        chain.append(value)
        value = value.args[0]
    yield from reversed(chain)


def _same_memory(value: fx.Node, target: fx.Node) -> bool:
    new, old = value.meta["val"], target.meta["val"]
    return (new.shape, new.stride(), new.dtype, new.device) == (old.shape, old.stride(), old.dtype, old.device)


def _only_written_back(versions: Sequence[fx.Node], outputs: Sequence[GraphOutput]) -> bool:
    """Whether no output is a version of a tensor, or a view of one, but the last version that is written back to it."""
    target, last = versions[0], versions[-1]
    views = {view for version in versions for view in _views_of(version)}
    others = [one for one in outputs if isinstance(one.value, fx.Node) and one.value in views]
    return all(one.value is last and one.mutated_input is target for one in others)


def _is_last_reader(old: fx.Node, new: fx.Node, statements: Sequence[Statement]) -> bool:
    """Whether an update is a statement of its own, and the last one that reads a tensor or a view of it, once."""
    views = _views_of(old)
    at = next((index for index, one in enumerate(statements) if one.nodes == (new,)), None)
    if at is None or any(view in views for view in _values_in((new.args[1:], new.kwargs))):
        return False
    return not any(view in views for one in statements[at + 1 :] for view in one.inputs)


def _values_in(arguments: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.map_arg(arguments, found.append)
    return found


def _views_of(node: fx.Node) -> set[fx.Node]:
    """A node and all that may share its memory, without its updates."""
    views, stack = {node}, [node]
    while stack:
        for user in stack.pop().users:
            if user not in views and user.op == "call_function" and _may_be_view(user):
                views.add(user)
                stack.append(user)
    return views


def _may_be_view(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):  # an element of several results, or unknown
        return True
    return is_alias(node) or any(result.alias_info for result in target._schema.returns)
