"""Rewrites that compute some nodes of a graph in slices."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.origins import CALL_VALUES
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.nodes import dim_arg, is_strided_view, node_arg, permuted_dims, shape_of
from kernelwright.compiler.regions.operators import CONSTANTS, SLICE_OPS, SPLIT_OPS, SUPPORTED_OPS, VIEWS, op_name
from kernelwright.compiler.rewrites.concat_boundaries import (
    DimSlice,
    concat_dim,
    is_elementwise,
    is_tensor,
    match_stack,
    slice_args,
)

aten = torch.ops.aten
SHARED_VALUE_MODES = ("recompute", "slice", "concat")
"""Treatment of a value that is used both in slices and as a whole: its slices are recomputed, it is computed as a whole
and sliced, or it is concatenated from its slices."""


class SplitRewrite:
    """Computes some nodes in slices; other users read the concatenation of the slices.

    Args:
        split_nodes: the nodes to compute in slices.
        slices: the slices, which cover a dimension.
        shared_mode: one of `SHARED_VALUE_MODES`.
    Attributes:
        new_nodes: the nodes that were inserted.
        has_shared_values: whether `shared_mode` makes a difference.
    """

    def __init__(
        self, graph: fx.Graph, split_nodes: dict[fx.Node, None], slices: Sequence[DimSlice], shared_mode: str
    ) -> None:
        self._graph, self._split_nodes, self._slices, self._shared_mode = graph, split_nodes, slices, shared_mode
        self._private: dict[fx.Node, bool] = {}
        self._slice_of: dict[tuple[fx.Node, DimSlice], fx.Node] = {}
        self._recomputed: dict[fx.Node, list[DimSlice]] = {}
        """Slices so far of values outside the split nodes that are recomputed in slices."""
        self._replaced: list[tuple[fx.Node, fx.Node]] = []
        self._last_inserted: dict[fx.Node, fx.Node] = {}
        self.new_nodes: list[fx.Node] = []
        self.has_shared_values = False

    def apply(self) -> bool:
        """Rewrite the graph; return whether that succeeded and changed anything. Failure needs `undo` too."""
        try:
            for node in self._split_nodes:
                sliced = [self._get_slice(node, cut) for cut in self._slices]
                self._replace_outside_uses(node, sliced, self._slices, self._split_nodes)
            if self._shared_mode == "concat":
                for node, slices in self._recomputed.items():
                    if not self._is_private(node) and len(slices) == len(self._slices):
                        split = {*self._split_nodes, *self._recomputed}
                        self._replace_outside_uses(node, [self._slice_of[node, cut] for cut in slices], slices, split)
        except Unsupported:
            return False
        return bool(self._replaced)

    def undo(self) -> None:
        """Restore the graph."""
        for old, new in self._replaced:
            new.replace_all_uses_with(old)
        for node in reversed(self.new_nodes):
            self._graph.erase_node(node)

    def remove_dead_nodes(self) -> None:
        """Remove the nodes that the rewrite made dead."""
        maybe_dead = {node for node, _ in self._slice_of} | {old for old, _ in self._replaced}
        for node in self.new_nodes:
            if op_name(node.target) == "slice":
                maybe_dead |= _merge_equal_slices(node)
        for node in reversed(list(self._graph.nodes)):
            if node in maybe_dead and node.op == "call_function" and not node.users:
                maybe_dead |= {source for source in node.all_input_nodes if can_join_region(source)}
                self._graph.erase_node(node)

    # ---- slices

    def _get_slice(self, node: fx.Node, cut: DimSlice) -> fx.Node:
        shape = shape_of(node)
        if len(shape) < -cut.dim or shape[cut.dim] == 1:
            return node
        if (node, cut) not in self._slice_of:
            self._slice_of[node, cut] = self._make_slice(node, cut)
        return self._slice_of[node, cut]

    def _make_slice(self, node: fx.Node, cut: DimSlice) -> fx.Node:
        if sliced := self._slice_of_concat(node, cut):
            return sliced
        if is_elementwise(node) and self._can_compute_slice(node, cut):
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda arg: self._get_slice(arg, cut))  # type: ignore[misc]
            return self._insert_node(node, node.target, args, kwargs)
        name = op_name(node.target)
        if name in CONSTANTS and name != "scalar_tensor":
            return self._slice_constant(node, name, cut)
        if name in ("unsqueeze", "permute", "transpose", "expand") and not is_strided_view(node):
            return self._slice_view(node, name, cut)
        rank = len(shape_of(node))
        return self._insert_node(node, aten.slice.Tensor, (node, cut.dim % rank, cut.start, cut.stop, cut.step))

    def _can_compute_slice(self, node: fx.Node, cut: DimSlice) -> bool:
        """Whether a slice of a value is computed, and not sliced from the whole value."""
        if node in self._split_nodes:
            return True
        if not self._is_private(node):
            self.has_shared_values = True
            if self._shared_mode == "slice":
                return False
        self._recomputed.setdefault(node, []).append(cut)
        return True

    def _is_private(self, node: fx.Node) -> bool:
        """Whether only split nodes use a value."""
        if node not in self._private:
            users = [user for user in node.users if user not in self.new_nodes]
            self._private[node] = all(
                user in self._split_nodes
                or (user.op == "call_function" and self._is_transparent(user) and self._is_private(user))
                for user in users
            )
        return self._private[node]

    def _is_transparent(self, node: fx.Node) -> bool:
        return is_elementwise(node) or op_name(node.target) in VIEWS

    def _slice_of_concat(self, node: fx.Node, cut: DimSlice) -> fx.Node | None:
        match op_name(node.target):
            case "cat" if cut.dim == concat_dim(node) and cut.step == 1:
                offset = 0
                for source in node.args[0]:  # type: ignore[union-attr]
                    size = shape_of(source)[cut.dim]  # type: ignore[arg-type]
                    if offset <= cut.start and cut.stop <= offset + size:
                        return self._slice_of_source(source, cut, offset)  # type: ignore[arg-type]
                    offset += size
            case "slice_scatter":
                dim, start, stop, step = slice_args(node)
                if (dim, step, cut.step) == (cut.dim, 1, 1):
                    if start <= cut.start and cut.stop <= stop:
                        return self._slice_of_source(node_arg(node, 1), cut, start)
                    if cut.stop <= start or stop <= cut.start:
                        return self._get_slice(node_arg(node, 0), cut)
            case "view" if (stack := match_stack(node)) and cut in stack.slices:
                source = stack.sources[stack.slices.index(cut)]
                if stack.stack_dim is None:
                    return source
                return self._insert_node(source, aten.unsqueeze.default, (source, stack.stack_dim))
        return None

    def _slice_of_source(self, source: fx.Node, cut: DimSlice, offset: int) -> fx.Node:
        """The slice of an input that begins at `offset` in the concatenation."""
        if shape_of(source)[cut.dim] == cut.size:
            return source
        return self._get_slice(source, cut._replace(start=cut.start - offset))

    def _slice_constant(self, node: fx.Node, name: str, cut: DimSlice) -> fx.Node:
        if name.endswith("_like"):
            return self._insert_node(
                node, node.target, (self._get_slice(node_arg(node, 0), cut), *node.args[1:]), node.kwargs
            )
        sizes = list(shape_of(node))
        sizes[cut.dim] = cut.size
        return self._insert_node(node, node.target, (sizes, *node.args[1:]), node.kwargs)

    def _slice_view(self, node: fx.Node, name: str, cut: DimSlice) -> fx.Node:
        """The same view of a slice of its source."""
        source, rank = node_arg(node, 0), len(shape_of(node))
        dim = cut.dim % rank
        if name == "expand":
            sizes = list(shape_of(node))
            sizes[dim] = cut.size
            return self._insert_node(node, node.target, (self._get_slice(source, cut), sizes))
        if name == "unsqueeze":
            added = dim_arg(node, 1, rank)
            inner = self._get_slice(source, cut._replace(dim=(dim - (dim > added)) - (rank - 1)))
            return self._insert_node(node, node.target, (inner, added))
        dims = permuted_dims(node, rank)
        return self._insert_node(
            node, aten.permute.default, (self._get_slice(source, cut._replace(dim=dims[dim] - rank)), dims)
        )

    # ---- concatenations

    def _replace_outside_uses(
        self, node: fx.Node, sliced: list[fx.Node], slices: Sequence[DimSlice], split: Any
    ) -> None:
        """Let the users that are not split read the concatenation of the slices."""
        users = [user for user in node.users if user not in split and user not in self.new_nodes]
        if not users:
            return
        whole = self._concat(node, sliced, slices)
        if "from_node" in node.meta:
            whole.meta["from_node"] = node.meta["from_node"]
        if CALL_VALUES in node.meta:
            whole.meta[CALL_VALUES] = node.meta[CALL_VALUES]
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user in users)
        self._replaced.append((node, whole))

    def _concat(self, node: fx.Node, sliced: list[fx.Node], slices: Sequence[DimSlice]) -> fx.Node:
        """The concatenation of the slices, with the node's memory layout.

        Raises:
            Unsupported: the node's memory is not dense.
        """
        shape, strides, rank = shape_of(node), node.meta["val"].stride(), len(shape_of(node))
        dims = sorted(range(rank), key=lambda dim: -int(strides[dim]))
        is_permuted = dims != list(range(rank))
        cat_dim = dims.index(slices[0].dim % rank)
        if is_permuted:
            sliced = [self._insert_node(node, aten.permute.default, (one, dims)) for one in sliced]
        if slices[0].step == 1:
            whole = self._insert_node(node, aten.cat.default, (sliced, cat_dim))
        else:
            unsqueezed = [self._insert_node(node, aten.unsqueeze.default, (one, cat_dim + 1)) for one in sliced]
            stack = self._insert_node(node, aten.cat.default, (unsqueezed, cat_dim + 1))
            whole = self._insert_node(node, aten.view.default, (stack, [shape[dim] for dim in dims]))
        if is_permuted:
            whole = self._insert_node(node, aten.permute.default, (whole, [dims.index(dim) for dim in range(rank)]))
        whole_strides = whole.meta["val"].stride()
        if any(one != other for one, other, size in zip(whole_strides, strides, shape, strict=True) if size > 1):
            raise Unsupported(f"{node.name} has a different memory layout from its slices")
        return whole

    def _insert_node(self, after: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
        """A new node after `after` and the nodes that were inserted for it."""
        last = self._last_inserted.get(after, after)
        if after.op != "call_function":
            others = (node for node in self._graph.nodes if node.op not in ("placeholder", "get_attr"))
            at_start = self._graph.inserting_before(next(others)) if after not in self._last_inserted else None
        else:
            at_start = None
        with at_start or self._graph.inserting_after(last):
            new = self._graph.create_node("call_function", target, args, dict(kwargs or {}), f"{after.name}_slice")
        new.meta["val"] = _fake_value(new, after.meta["val"])
        self._last_inserted[after] = new
        self.new_nodes.append(new)
        return new


class SliceRewrite(SplitRewrite):
    """Computes the slices of a value that its users read, instead of slicing the value.

    Args:
        node: the value.
        slices: the slicing users of `node`, with their slices.
        shared_mode: one of `SHARED_VALUE_MODES`.
    """

    def __init__(self, graph: fx.Graph, node: fx.Node, slices: dict[fx.Node, DimSlice], shared_mode: str) -> None:
        super().__init__(graph, {}, [], shared_mode)
        self._sliced_node, self._sliced_users = node, slices
        splits = [user for user in node.users if op_name(user.target) in SPLIT_OPS]
        slicing_users = {*slices, *(user for user in splits if user.users.keys() <= slices.keys())}
        self._private[node] = node.users.keys() <= slicing_users

    def apply(self) -> bool:
        """Rewrite the graph; return whether that succeeded and kept memory layouts. Failure needs `undo` too."""
        try:
            for user, cut in self._sliced_users.items():
                sliced = self._get_slice(self._sliced_node, cut)
                users = list(user.users)
                user.replace_all_uses_with(sliced)
                self._replaced.append((user, sliced))
                if not all(_keeps_layout(node) for node in users if node not in self.new_nodes):
                    return False
        except Unsupported:
            return False
        return True


def _keeps_layout(node: fx.Node) -> bool:
    """Whether a node keeps its strides, although those of its arguments may have changed."""
    before = node.meta.get("val")
    if not isinstance(before, torch.Tensor) or op_name(node.target) not in {*SUPPORTED_OPS, "slice_scatter"} - {*VIEWS}:
        return False
    now = _fake_value(node, before)
    return all(
        one == other for one, other, size in zip(now.stride(), before.stride(), before.shape, strict=True) if size > 1
    )


def _fake_value(node: fx.Node, like: torch.Tensor) -> Any:
    """A node's value for fake arguments."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda arg: arg.meta["val"])  # type: ignore[misc]
    with getattr(like, "fake_mode", nullcontext()), torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _merge_equal_slices(cut: fx.Node) -> set[fx.Node]:
    """Replace the other nodes that are the same slice of the same tensor, and return them; they are dead now."""
    source = node_arg(cut, 0)
    split = [chunk for user in source.users if op_name(user.target) in SPLIT_OPS for chunk in user.users]
    same = {
        node
        for node in (*source.users, *split)
        if node is not cut and is_strided_view(node) and is_tensor(node) and _memory_layout(node) == _memory_layout(cut)
    }
    for node in same:
        node.replace_all_uses_with(cut)
    return same


def _memory_layout(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return tuple(value.shape), tuple(value.stride()), value.storage_offset()


def can_join_region(node: fx.Node) -> bool:
    """Whether a region can compute a node or read through it."""
    return node.op == "call_function" and op_name(node.target) in {
        *SUPPORTED_OPS,
        *SLICE_OPS,
        *SPLIT_OPS,
        *CONSTANTS,
        "slice_scatter",
    }
