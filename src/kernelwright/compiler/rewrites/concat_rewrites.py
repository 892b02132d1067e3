"""A graph in which some nodes are computed in parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

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
SHARED_VALUE_MODES = ("again", "cut", "together")
"""What becomes of a value that is needed in parts and as a whole: its parts are computed again, it is computed whole
and cut, or it is put together from its parts."""


class SplitRewrite:
    """Some nodes computed in parts; whoever else needs one gets it put together. It can be undone."""

    def __init__(self, graph: fx.Graph, inside: dict[fx.Node, None], cuts: Sequence[DimSlice], shared: str) -> None:
        self._graph, self._split_nodes, self._slices, self._shared_mode = graph, inside, cuts, shared
        self._private: dict[fx.Node, bool] = {}
        self._slice_of: dict[tuple[fx.Node, DimSlice], fx.Node] = {}
        self._recomputed: dict[fx.Node, list[DimSlice]] = {}
        """Values outside that are computed again in parts, with these parts as far as there are."""
        self._replaced: list[tuple[fx.Node, fx.Node]] = []
        self._last_inserted: dict[fx.Node, fx.Node] = {}
        self.new_nodes: list[fx.Node] = []
        self.has_shared_values = False

    def apply(self) -> bool:
        """Whether it could be."""
        try:
            for node in self._split_nodes:
                parts = [self._get_slice(node, cut) for cut in self._slices]
                self._replace_outside_uses(node, parts, self._slices, self._split_nodes)
            if self._shared_mode == "together":
                for node, cuts in self._recomputed.items():
                    if not self._is_private(node) and len(cuts) == len(self._slices):
                        split = {*self._split_nodes, *self._recomputed}
                        self._replace_outside_uses(node, [self._slice_of[node, cut] for cut in cuts], cuts, split)
        except Unsupported:
            return False
        return bool(self._replaced)

    def undo(self) -> None:
        for old, new in self._replaced:
            new.replace_all_uses_with(old)
        for node in reversed(self.new_nodes):
            self._graph.erase_node(node)

    def remove_dead_nodes(self) -> None:
        """Takes out what nobody needs any more."""
        before = {node for node, _ in self._slice_of} | {old for old, _ in self._replaced}
        for node in self.new_nodes:
            if op_name(node.target) == "slice":
                before |= _merge_equal_slices(node)
        for node in reversed(list(self._graph.nodes)):
            if node in before and node.op == "call_function" and not node.users:
                before |= {source for source in node.all_input_nodes if can_join_region(source)}
                self._graph.erase_node(node)

    # ---- parts

    def _get_slice(self, node: fx.Node, cut: DimSlice) -> fx.Node:
        shape = shape_of(node)
        if len(shape) < -cut.dim or shape[cut.dim] == 1:
            return node
        if (node, cut) not in self._slice_of:
            self._slice_of[node, cut] = self._make_slice(node, cut)
        return self._slice_of[node, cut]

    def _make_slice(self, node: fx.Node, cut: DimSlice) -> fx.Node:
        if part := self._slice_of_concat(node, cut):
            return part
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
        """Whether a part of a value is computed and not cut out of the whole."""
        if node in self._split_nodes:
            return True
        if not self._is_private(node):
            self.has_shared_values = True
            if self._shared_mode == "cut":
                return False
        self._recomputed.setdefault(node, []).append(cut)
        return True

    def _is_private(self, node: fx.Node) -> bool:
        """Whether nobody else needs a value."""
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
                place = 0
                for source in node.args[0]:  # type: ignore[union-attr]
                    size = shape_of(source)[cut.dim]  # type: ignore[arg-type]
                    if place <= cut.start and cut.stop <= place + size:
                        return self._slice_of_source(source, cut, place)  # type: ignore[arg-type]
                    place += size
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

    def _slice_of_source(self, source: fx.Node, cut: DimSlice, place: int) -> fx.Node:
        """The part of something that begins at `place`."""
        if shape_of(source)[cut.dim] == cut.size:
            return source
        return self._get_slice(source, cut._replace(start=cut.start - place))

    def _slice_constant(self, node: fx.Node, name: str, cut: DimSlice) -> fx.Node:
        if name.endswith("_like"):
            return self._insert_node(
                node, node.target, (self._get_slice(node_arg(node, 0), cut), *node.args[1:]), node.kwargs
            )
        sizes = list(shape_of(node))
        sizes[cut.dim] = cut.size
        return self._insert_node(node, node.target, (sizes, *node.args[1:]), node.kwargs)

    def _slice_view(self, node: fx.Node, name: str, cut: DimSlice) -> fx.Node:
        """The same view of a part of what is viewed."""
        source, rank = node_arg(node, 0), len(shape_of(node))
        place = cut.dim % rank
        if name == "expand":
            sizes = list(shape_of(node))
            sizes[place] = cut.size
            return self._insert_node(node, node.target, (self._get_slice(source, cut), sizes))
        if name == "unsqueeze":
            added = dim_arg(node, 1, rank)
            inner = self._get_slice(source, cut._replace(dim=(place - (place > added)) - (rank - 1)))
            return self._insert_node(node, node.target, (inner, added))
        dims = permuted_dims(node, rank)
        return self._insert_node(
            node, aten.permute.default, (self._get_slice(source, cut._replace(dim=dims[place] - rank)), dims)
        )

    # ---- wholes

    def _replace_outside_uses(self, node: fx.Node, parts: list[fx.Node], cuts: Sequence[DimSlice], split: Any) -> None:
        """Gives everybody who is not split the parts put together."""
        users = [user for user in node.users if user not in split and user not in self.new_nodes]
        if not users:
            return
        whole = self._concat(node, parts, cuts)
        if "from_node" in node.meta:
            whole.meta["from_node"] = node.meta["from_node"]
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user in users)
        self._replaced.append((node, whole))

    def _concat(self, node: fx.Node, parts: list[fx.Node], cuts: Sequence[DimSlice]) -> fx.Node:
        """The parts put together, in memory as the node is.

        Raises:
            Misfit: that has gaps.
        """
        shape, strides, rank = shape_of(node), node.meta["val"].stride(), len(shape_of(node))
        dims = sorted(range(rank), key=lambda dim: -int(strides[dim]))
        moved = dims != list(range(rank))
        place = dims.index(cuts[0].dim % rank)
        if moved:
            parts = [self._insert_node(node, aten.permute.default, (part, dims)) for part in parts]
        if cuts[0].step == 1:
            whole = self._insert_node(node, aten.cat.default, (parts, place))
        else:
            pairs = [self._insert_node(node, aten.unsqueeze.default, (part, place + 1)) for part in parts]
            stack = self._insert_node(node, aten.cat.default, (pairs, place + 1))
            whole = self._insert_node(node, aten.view.default, (stack, [shape[dim] for dim in dims]))
        if moved:
            whole = self._insert_node(node, aten.permute.default, (whole, [dims.index(dim) for dim in range(rank)]))
        laid = whole.meta["val"].stride()
        if any(one != other for one, other, size in zip(laid, strides, shape, strict=True) if size > 1):
            raise Unsupported(f"{node.name} is not laid out as its parts are")
        return whole

    def _insert_node(self, after: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
        """A new node as soon as `after` and what was made for it are there."""
        last = self._last_inserted.get(after, after)
        if after.op != "call_function":
            others = (node for node in self._graph.nodes if node.op not in ("placeholder", "get_attr"))
            place = self._graph.inserting_before(next(others)) if after not in self._last_inserted else None
        else:
            place = None
        with place or self._graph.inserting_after(last):
            new = self._graph.create_node("call_function", target, args, dict(kwargs or {}), f"{after.name}_part")
        new.meta["val"] = _fake_value(new, after.meta["val"])
        self._last_inserted[after] = new
        self.new_nodes.append(new)
        return new


class SliceRewrite(SplitRewrite):
    """Parts of a value that are computed as parts."""

    def __init__(self, graph: fx.Graph, node: fx.Node, taken: dict[fx.Node, DimSlice], shared: str) -> None:
        super().__init__(graph, {}, [], shared)
        self._sliced_node, self._sliced_users = node, taken
        split = [user for user in node.users if op_name(user.target) in SPLIT_OPS]
        takers = {*taken, *(user for user in split if user.users.keys() <= taken.keys())}
        self._private[node] = node.users.keys() <= takers

    def apply(self) -> bool:
        try:
            for user, cut in self._sliced_users.items():
                part = self._get_slice(self._sliced_node, cut)
                users = list(user.users)
                user.replace_all_uses_with(part)
                self._replaced.append((user, part))
                if not all(_keeps_layout(node) for node in users if node not in self.new_nodes):
                    return False
        except Unsupported:
            return False
        return True


def _keeps_layout(node: fx.Node) -> bool:
    """Whether a node lies in memory as before, although its arguments may not."""
    before = node.meta.get("val")
    if not isinstance(before, torch.Tensor) or op_name(node.target) not in {*SUPPORTED_OPS, "slice_scatter"} - {*VIEWS}:
        return False
    now = _fake_value(node, before)
    return all(
        one == other for one, other, size in zip(now.stride(), before.stride(), before.shape, strict=True) if size > 1
    )


def _fake_value(node: fx.Node, like: torch.Tensor) -> Any:
    """What a node gives for fake arguments."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda arg: arg.meta["val"])  # type: ignore[misc]
    with getattr(like, "fake_mode", nullcontext()), torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _merge_equal_slices(cut: fx.Node) -> set[fx.Node]:
    """The other nodes that are the same part of the same tensor, which nobody needs after this."""
    source = node_arg(cut, 0)
    split = [part for user in source.users if op_name(user.target) in SPLIT_OPS for part in user.users]
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
    return node.op == "call_function" and op_name(node.target) in {
        *SUPPORTED_OPS,
        *SLICE_OPS,
        *SPLIT_OPS,
        *CONSTANTS,
        "slice_scatter",
    }
