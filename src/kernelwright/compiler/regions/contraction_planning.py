"""Contractions of a graph that a GPU kernel computes, each fused with a region that is elementwise on its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import AnyRegion, Contraction, ContractionRegion, Matrix, Windows
from kernelwright.compiler.regions.convolution_matching import bias_of, match_convolution
from kernelwright.compiler.regions.nodes import dtype_of, node_arg, resolve_view, shape_of
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.region import Axis, Load, Region, Store
from kernelwright.verification.outcome import WIDENED, operand_precision

DTYPES = ("float32", "float16", "bfloat16")
MIN_SIZE = 16
"""Least rows, columns and depth: the tensor cores' tiles; smaller products read one operand once, as rows do."""
MIN_GROUP_ROWS = 8
"""Least rows of a convolution in groups: they use half of a tile, where torch has no good kernel."""
MIN_FLOPS = 2**27
"""A smaller product takes less time than the launches around it."""
Planned = tuple[AnyRegion, list[fx.Node]]


def plan_contractions(
    graph: fx.Graph, regions: Sequence[tuple[Region, list[fx.Node]]], prefix: str = "region"
) -> list[Planned]:
    """Add the contractions of a graph to its regions; a region that is elementwise on the result of one becomes its
    epilogue; `prefix` is that of the names of the others."""
    planned: list[Planned] = list(regions)
    nodes = {node.name: node for node in graph.nodes}
    for node in graph.nodes:
        match = _MATCHERS.get(op_name(node.target))
        if node.op != "call_function" or match is None or runs_on_cpu(node.meta["val"]):
            continue
        try:
            contraction = match(node)
            _check_worthwhile(contraction)
        except Unsupported:
            continue
        epilogue = _find_epilogue(node, contraction, planned, nodes)
        if epilogue is None:
            name = f"{prefix}_{len(planned)}"
            region = ContractionRegion(name=name, contraction=contraction, epilogue=_copy(name, contraction, node))
            planned.append((region, [node]))
        else:
            index, region = epilogue
            planned[index] = (region, [node, *planned[index][1]])
    order = {node: index for index, node in enumerate(graph.nodes)}
    return sorted(planned, key=lambda one: min(order[node] for node in one[1]))


def is_contraction(node: fx.Node) -> bool:
    """Whether a kernel of a contraction can compute a node on a GPU, with what is elementwise on it."""
    match = _MATCHERS.get(op_name(node.target))
    if node.op != "call_function" or match is None or runs_on_cpu(node.meta["val"]):
        return False
    try:
        _check_worthwhile(match(node))
    except Unsupported:
        return False
    return True


def _check_worthwhile(one: Contraction) -> None:
    in_groups = isinstance(one.right, Windows) and one.right.groups > 1
    least_rows = min(MIN_GROUP_ROWS, MIN_SIZE) if in_groups else MIN_SIZE
    if one.m < least_rows or min(one.n, one.k) < MIN_SIZE or one.flops < MIN_FLOPS:
        raise Unsupported("a product too small for tensor cores")
    if {one.dtype, one.left.dtype, one.right.dtype} - {*DTYPES} or one.left.dtype != one.right.dtype:
        raise Unsupported("dtypes without tensor cores, or two different ones")


# ---- operators


def _match_linear(node: fx.Node) -> Contraction:
    left, right = node_arg(node, 0), node_arg(node, 1)
    bias = node.args[2] if len(node.args) > 2 else node.kwargs.get("bias")
    return _product(node, _rows_of(left), _matrix(right, transposed=False), shape_of(right)[0], bias)


def _match_matmul(
    node: fx.Node, left: fx.Node | None = None, right: fx.Node | None = None, bias: Any = None
) -> Contraction:
    left, right = left or node_arg(node, 0), right or node_arg(node, 1)
    ranks = len(shape_of(left)), len(shape_of(right))
    if min(ranks) < 2:
        raise Unsupported("a product with a vector")
    if ranks[1] == 2:
        return _product(node, _rows_of(left), _matrix(right, transposed=True), shape_of(right)[1], bias)
    if shape_of(left)[:-2] != shape_of(right)[:-2]:
        raise Unsupported("a product with broadcast batches")
    return _product(node, _batches_of(left), _matrix(right, transposed=True), shape_of(right)[-1], bias)


def _match_addmm(node: fx.Node) -> Contraction:
    if any(value != 1 for value in node.kwargs.values()) or len(shape_of(node_arg(node, 0))) != 1:
        raise Unsupported("a scaled sum with a matrix")
    return _match_matmul(node, node_arg(node, 1), node_arg(node, 2), node_arg(node, 0))


_MATCHERS: dict[str, Callable[[fx.Node], Contraction]] = {
    "linear": _match_linear, "mm": _match_matmul, "bmm": _match_matmul, "matmul": _match_matmul, "addmm": _match_addmm,
    "conv1d": match_convolution, "conv2d": match_convolution, "conv3d": match_convolution,
    "convolution": match_convolution,
}  # fmt: skip


def _product(node: fx.Node, left: tuple[Matrix, int, int], right: Matrix, n: int, bias: Any) -> Contraction:
    matrix, batch, m = left
    value = node.meta["val"]
    if not value.is_contiguous() or value.numel() != batch * m * n:
        raise Unsupported("a result that is not contiguous")
    k = shape_of(node_arg(node, 1 if op_name(node.target) == "addmm" else 0))[-1]
    return Contraction(
        value=node.name, dtype=dtype_of(node), batch=batch, m=m, n=n, k=k, left=matrix, right=right,
        bias=bias_of(bias, n), tf32=dtype_of(node) == "float32" and _may_use_tf32(),
    )  # fmt: skip


def _may_use_tf32() -> bool:
    """Whether torch or the user permits TF32 in products of matrices."""
    return bool(torch.backends.cuda.matmul.allow_tf32) or operand_precision() in WIDENED


def _rows_of(node: fx.Node) -> tuple[Matrix, int, int]:
    """All dimensions but the last one as rows: the matrix, 1 batch, the number of rows."""
    root, strides, offset = resolve_view(node)
    shape = shape_of(node)
    row_stride = _common_stride(shape[:-1], strides[:-1])
    matrix = Matrix(buffer=root.name, dtype=dtype_of(root), batch_stride=0, row_stride=row_stride, k_stride=strides[-1],
                    offset=offset)  # fmt: skip
    return matrix, 1, prod(shape[:-1])


def _batches_of(node: fx.Node) -> tuple[Matrix, int, int]:
    shape = shape_of(node)
    return _matrix(node, transposed=False), prod(shape[:-2]), shape[-2]


def _matrix(node: fx.Node, *, transposed: bool) -> Matrix:
    root, strides, offset = resolve_view(node)
    rows, depth = (strides[-1], strides[-2]) if transposed else (strides[-2], strides[-1])
    batch, axes = _batch_strides(shape_of(node)[:-2], strides[:-2])
    return Matrix(buffer=root.name, dtype=dtype_of(root), batch_stride=batch, row_stride=rows, k_stride=depth,
                  offset=offset, batch_axes=axes)  # fmt: skip


def _batch_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The stride of the outermost dimensions that are one in memory, and the sizes and strides of the others."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if axes and axes[-1][1] == size * stride:
            axes[-1] = (axes[-1][0] * size, stride)
        elif size != 1:
            axes.append((size, stride))
    return (axes[0][1], tuple(axes[1:])) if axes else (0, ())


def _common_stride(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The stride of several dimensions that are one in memory.

    Raises:
        Unsupported: they are not.
    """
    kept = [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]
    if not kept:
        return 0
    for (_, outer), (size, inner) in pairwise(kept):
        if outer != size * inner:
            raise Unsupported("dimensions that are not one in memory")
    return kept[-1][1]


# ---- epilogues


def _copy(name: str, one: Contraction, node: fx.Node) -> Region:
    """The epilogue that stores the result."""
    strides = {"i0": one.n, "i1": 1}
    shape, dtype = shape_of(node), one.dtype
    load = Load(value=f"{one.value}_in", buffer=one.value, dtype=dtype, strides=strides)
    return Region(
        name=name,
        outer=(Axis(name="i0", size=one.batch * one.m), Axis(name="i1", size=one.n)),
        row=(),
        loads=(load,),
        steps=(),
        stores=(_store(load, node.name, dtype, shape, node.meta["val"].stride()),),
    )


def _store(load: Load, buffer: str, dtype: str, shape: tuple[int, ...], strides: Sequence[int]) -> Store:
    return Store(
        value=load.value, buffer=buffer, dtype=dtype, shape=shape, shape_strides=tuple(map(int, strides)),
        strides=load.strides,
    )  # fmt: skip


def _find_epilogue(
    node: fx.Node, contraction: Contraction, planned: Sequence[Planned], nodes: dict[str, fx.Node]
) -> tuple[int, ContractionRegion] | None:
    """The largest region that can be the epilogue of a contraction: its index, and the fused region."""
    found: list[tuple[int, int, ContractionRegion]] = []
    for index, (region, inside) in enumerate(planned):
        if not isinstance(region, Region) or node.name not in region.reads:
            continue
        fused = ContractionRegion(name=region.name, contraction=contraction, epilogue=region)
        try:
            _ = fused.indices
        except Unsupported:
            continue
        if _depends_otherwise(index, node, planned, nodes):
            continue
        if _is_read_elsewhere(node, set(inside)):
            load = next(load for load in region.loads if load.buffer == node.name)
            kept = _store(load, node.name, contraction.dtype, shape_of(node), node.meta["val"].stride())
            fused = msgspec.structs.replace(
                fused, epilogue=msgspec.structs.replace(region, stores=(*region.stores, kept))
            )
        found.append((sum(region.bytes_moved), index, fused))
    return max(found, key=lambda one: one[0])[1:] if found else None


def _is_read_elsewhere(node: fx.Node, inside: set[fx.Node]) -> bool:
    """Whether a node that is not in a region reads the result, possibly as a view of it."""
    for user in node.users:
        if user in inside:
            continue
        root_only = user.op == "call_function" and _is_view_of(user, node)
        if not root_only or _is_read_elsewhere(user, inside):
            return True
    return False


def _is_view_of(user: fx.Node, node: fx.Node) -> bool:
    value = user.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return False
    try:
        return resolve_view(user)[0] is resolve_view(node)[0]
    except Unsupported:
        return False


def _depends_otherwise(index: int, node: fx.Node, planned: Sequence[Planned], nodes: dict[str, fx.Node]) -> bool:
    """Whether a region reads something else that is computed from the result, outside the region.

    Another region that reads the result computes all of its outputs after it, also those that do not depend on it.
    """
    region, inside = planned[index][0], set(planned[index][1])
    others = [(one, set(members)) for at, (one, members) in enumerate(planned) if at != index]
    reads = {nodes[name] for name in region.reads} - {node}
    stack = [user for user in node.users if user not in inside]
    seen: set[fx.Node] = set()
    while stack:
        user = stack.pop()
        if user in seen:
            continue
        seen.add(user)
        if user in reads:
            return True
        stack += [one for one in user.users if one not in inside]
        stack += [nodes[name] for one, members in others if user in members for name in one.writes]
    return False
