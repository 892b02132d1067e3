"""A graph in which some nodes are computed in parts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.nodes import dim_at, is_read_in_place, node_at, order, shape_of
from kernelwright.compiler.regions.operators import CONSTANTS, CUTS, LOWERED, PIECES, VIEWS, packet
from kernelwright.compiler.rewrites.concat_boundaries import (
    Cut,
    cat_dim,
    is_elementwise,
    is_tensor,
    scattered,
    stack_of,
)

aten = torch.ops.aten
SHARED = ("again", "cut", "together")
"""What becomes of a value that is needed in parts and as a whole: its parts are computed again, it is computed whole
and cut, or it is put together from its parts."""


class Splitting:
    """Some nodes computed in parts; whoever else needs one gets it put together. It can be undone."""

    def __init__(self, graph: fx.Graph, inside: dict[fx.Node, None], cuts: Sequence[Cut], shared: str) -> None:
        self._graph, self._inside, self._cuts, self._shared = graph, inside, cuts, shared
        self._private: dict[fx.Node, bool] = {}
        self._parts: dict[tuple[fx.Node, Cut], fx.Node] = {}
        self._whole: dict[fx.Node, list[Cut]] = {}
        """Values outside that are computed again in parts, with these parts as far as there are."""
        self._replaced: list[tuple[fx.Node, fx.Node]] = []
        self._last: dict[fx.Node, fx.Node] = {}
        self.new: list[fx.Node] = []
        self.shares = False

    def done(self) -> bool:
        """Whether it could be."""
        try:
            for node in self._inside:
                parts = [self._part(node, cut) for cut in self._cuts]
                self._replace(node, parts, self._cuts, self._inside)
            if self._shared == "together":
                for node, cuts in self._whole.items():
                    if not self._is_private(node) and len(cuts) == len(self._cuts):
                        split = {*self._inside, *self._whole}
                        self._replace(node, [self._parts[node, cut] for cut in cuts], cuts, split)
        except Misfit:
            return False
        return bool(self._replaced)

    def undo(self) -> None:
        for old, new in self._replaced:
            new.replace_all_uses_with(old)
        for node in reversed(self.new):
            self._graph.erase_node(node)

    def clear(self) -> None:
        """Takes out what nobody needs any more."""
        before = {node for node, _ in self._parts} | {old for old, _ in self._replaced}
        for node in self.new:
            if packet(node.target) == "slice":
                before |= _made_same(node)
        for node in reversed(list(self._graph.nodes)):
            if node in before and node.op == "call_function" and not node.users:
                before |= {source for source in node.all_input_nodes if may_share(source)}
                self._graph.erase_node(node)

    # ---- parts

    def _part(self, node: fx.Node, cut: Cut) -> fx.Node:
        shape = shape_of(node)
        if len(shape) < -cut.dim or shape[cut.dim] == 1:
            return node
        if (node, cut) not in self._parts:
            self._parts[node, cut] = self._made(node, cut)
        return self._parts[node, cut]

    def _made(self, node: fx.Node, cut: Cut) -> fx.Node:
        if part := self._of_what_is_put_together(node, cut):
            return part
        if is_elementwise(node) and self._may_be_computed(node, cut):
            args, kwargs = fx.map_arg((node.args, node.kwargs), lambda arg: self._part(arg, cut))  # type: ignore[misc]
            return self._node(node, node.target, args, kwargs)
        name = packet(node.target)
        if name in CONSTANTS and name != "scalar_tensor":
            return self._constant(node, name, cut)
        if name in ("unsqueeze", "permute", "transpose", "expand") and not is_read_in_place(node):
            return self._view(node, name, cut)
        rank = len(shape_of(node))
        return self._node(node, aten.slice.Tensor, (node, cut.dim % rank, cut.start, cut.stop, cut.step))

    def _may_be_computed(self, node: fx.Node, cut: Cut) -> bool:
        """Whether a part of a value is computed and not cut out of the whole."""
        if node in self._inside:
            return True
        if not self._is_private(node):
            self.shares = True
            if self._shared == "cut":
                return False
        self._whole.setdefault(node, []).append(cut)
        return True

    def _is_private(self, node: fx.Node) -> bool:
        """Whether nobody else needs a value."""
        if node not in self._private:
            users = [user for user in node.users if user not in self.new]
            self._private[node] = all(
                user in self._inside or (user.op == "call_function" and self._goes_on(user) and self._is_private(user))
                for user in users
            )
        return self._private[node]

    def _goes_on(self, node: fx.Node) -> bool:
        return is_elementwise(node) or packet(node.target) in VIEWS

    def _of_what_is_put_together(self, node: fx.Node, cut: Cut) -> fx.Node | None:
        match packet(node.target):
            case "cat" if cut.dim == cat_dim(node) and cut.step == 1:
                place = 0
                for source in node.args[0]:  # type: ignore[union-attr]
                    size = shape_of(source)[cut.dim]  # type: ignore[arg-type]
                    if place <= cut.start and cut.stop <= place + size:
                        return self._inner(source, cut, place)  # type: ignore[arg-type]
                    place += size
            case "slice_scatter":
                dim, start, stop, step = scattered(node)
                if (dim, step, cut.step) == (cut.dim, 1, 1):
                    if start <= cut.start and cut.stop <= stop:
                        return self._inner(node_at(node, 1), cut, start)
                    if cut.stop <= start or stop <= cut.start:
                        return self._part(node_at(node, 0), cut)
            case "view" if (stack := stack_of(node)) and cut in stack.cuts:
                source = stack.sources[stack.cuts.index(cut)]
                if stack.added is None:
                    return source
                return self._node(source, aten.unsqueeze.default, (source, stack.added))
        return None

    def _inner(self, source: fx.Node, cut: Cut, place: int) -> fx.Node:
        """The part of something that begins at `place`."""
        if shape_of(source)[cut.dim] == cut.size:
            return source
        return self._part(source, cut._replace(start=cut.start - place))

    def _constant(self, node: fx.Node, name: str, cut: Cut) -> fx.Node:
        if name.endswith("_like"):
            return self._node(node, node.target, (self._part(node_at(node, 0), cut), *node.args[1:]), node.kwargs)
        sizes = list(shape_of(node))
        sizes[cut.dim] = cut.size
        return self._node(node, node.target, (sizes, *node.args[1:]), node.kwargs)

    def _view(self, node: fx.Node, name: str, cut: Cut) -> fx.Node:
        """The same view of a part of what is viewed."""
        source, rank = node_at(node, 0), len(shape_of(node))
        place = cut.dim % rank
        if name == "expand":
            sizes = list(shape_of(node))
            sizes[place] = cut.size
            return self._node(node, node.target, (self._part(source, cut), sizes))
        if name == "unsqueeze":
            added = dim_at(node, 1, rank)
            inner = self._part(source, cut._replace(dim=(place - (place > added)) - (rank - 1)))
            return self._node(node, node.target, (inner, added))
        dims = order(node, rank)
        return self._node(node, aten.permute.default, (self._part(source, cut._replace(dim=dims[place] - rank)), dims))

    # ---- wholes

    def _replace(self, node: fx.Node, parts: list[fx.Node], cuts: Sequence[Cut], split: Any) -> None:
        """Gives everybody who is not split the parts put together."""
        users = [user for user in node.users if user not in split and user not in self.new]
        if not users:
            return
        whole = self._together(node, parts, cuts)
        if "from_node" in node.meta:
            whole.meta["from_node"] = node.meta["from_node"]
        node.replace_all_uses_with(whole, delete_user_cb=lambda user: user in users)
        self._replaced.append((node, whole))

    def _together(self, node: fx.Node, parts: list[fx.Node], cuts: Sequence[Cut]) -> fx.Node:
        """The parts put together, in memory as the node is.

        Raises:
            Misfit: that has gaps.
        """
        shape, strides, rank = shape_of(node), node.meta["val"].stride(), len(shape_of(node))
        dims = sorted(range(rank), key=lambda dim: -int(strides[dim]))
        moved = dims != list(range(rank))
        place = dims.index(cuts[0].dim % rank)
        if moved:
            parts = [self._node(node, aten.permute.default, (part, dims)) for part in parts]
        if cuts[0].step == 1:
            whole = self._node(node, aten.cat.default, (parts, place))
        else:
            pairs = [self._node(node, aten.unsqueeze.default, (part, place + 1)) for part in parts]
            stack = self._node(node, aten.cat.default, (pairs, place + 1))
            whole = self._node(node, aten.view.default, (stack, [shape[dim] for dim in dims]))
        if moved:
            whole = self._node(node, aten.permute.default, (whole, [dims.index(dim) for dim in range(rank)]))
        laid = whole.meta["val"].stride()
        if any(one != other for one, other, size in zip(laid, strides, shape, strict=True) if size > 1):
            raise Misfit(f"{node.name} is not laid out as its parts are")
        return whole

    def _node(self, after: fx.Node, target: Any, args: Any, kwargs: Any = None) -> fx.Node:
        """A new node as soon as `after` and what was made for it are there."""
        last = self._last.get(after, after)
        if after.op != "call_function":
            others = (node for node in self._graph.nodes if node.op not in ("placeholder", "get_attr"))
            place = self._graph.inserting_before(next(others)) if after not in self._last else None
        else:
            place = None
        with place or self._graph.inserting_after(last):
            new = self._graph.create_node("call_function", target, args, dict(kwargs or {}), f"{after.name}_part")
        new.meta["val"] = _value(new, after.meta["val"])
        self._last[after] = new
        self.new.append(new)
        return new


class Taking(Splitting):
    """Parts of a value that are computed as parts."""

    def __init__(self, graph: fx.Graph, node: fx.Node, taken: dict[fx.Node, Cut], shared: str) -> None:
        super().__init__(graph, {}, [], shared)
        self._node_cut, self._taken = node, taken
        split = [user for user in node.users if packet(user.target) in PIECES]
        takers = {*taken, *(user for user in split if user.users.keys() <= taken.keys())}
        self._private[node] = node.users.keys() <= takers

    def done(self) -> bool:
        try:
            for user, cut in self._taken.items():
                part = self._part(self._node_cut, cut)
                users = list(user.users)
                user.replace_all_uses_with(part)
                self._replaced.append((user, part))
                if not all(_stays_as_it_is(node) for node in users if node not in self.new):
                    return False
        except Misfit:
            return False
        return True


def _stays_as_it_is(node: fx.Node) -> bool:
    """Whether a node lies in memory as before, although its arguments may not."""
    before = node.meta.get("val")
    if not isinstance(before, torch.Tensor) or packet(node.target) not in {*LOWERED, "slice_scatter"} - {*VIEWS}:
        return False
    now = _value(node, before)
    return all(
        one == other for one, other, size in zip(now.stride(), before.stride(), before.shape, strict=True) if size > 1
    )


def _value(node: fx.Node, like: torch.Tensor) -> Any:
    """What a node gives for fake arguments."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda arg: arg.meta["val"])  # type: ignore[misc]
    with getattr(like, "fake_mode", nullcontext()), torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _made_same(cut: fx.Node) -> set[fx.Node]:
    """The other nodes that are the same part of the same tensor, which nobody needs after this."""
    source = node_at(cut, 0)
    split = [part for user in source.users if packet(user.target) in PIECES for part in user.users]
    same = {
        node
        for node in (*source.users, *split)
        if node is not cut and is_read_in_place(node) and is_tensor(node) and _place(node) == _place(cut)
    }
    for node in same:
        node.replace_all_uses_with(cut)
    return same


def _place(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return tuple(value.shape), tuple(value.stride()), value.storage_offset()


def may_share(node: fx.Node) -> bool:
    return node.op == "call_function" and packet(node.target) in {*LOWERED, *CUTS, *PIECES, *CONSTANTS, "slice_scatter"}
