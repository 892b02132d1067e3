"""A pooling of a pooling is one pooling with larger windows."""

from __future__ import annotations

from math import prod

from torch import fx

from kernelwright.compiler.regions.nodes import result_shape
from kernelwright.compiler.regions.pooling import Pool, PoolDim
from kernelwright.compiler.rewrites.pools import find_pool, insert_pool, skip_unit_dims
from kernelwright.compiler.rewrites.rewriting import (
    FULL_PRECISION_DTYPES,
    erase_unused,
    inserting_calls_before,
    replace_value,
    tensor_of,
)


def join_pools(graph: fx.Graph) -> int:
    """Replace, in place, a pooling of a pooling by one pooling, where that is not more work; return how many.

    Proof: window o of the outer pooling has the results stride * o to stride * o + size - 1 of the inner one, none of
    which is padding. Their windows have the elements from inner_stride * stride * o - inner_padding on, without a gap
    if inner_size >= inner_stride: inner_stride * (size - 1) + inner_size of them, whose maximum it is. An average is
    that of the averages if no element is in two inner windows and all of these have as many elements.
    """
    return sum(_join(graph, node) for node in list(graph.nodes) if not node._erased)


def _join(graph: fx.Graph, node: fx.Node) -> bool:
    outer = find_pool(node)
    inner = find_pool(skip_unit_dims(outer.source)) if outer else None
    if outer is None or inner is None or outer.is_average != inner.is_average or len(outer.source.users) > 1:
        return False
    if len(outer.dims) != len(inner.dims) or not _are_joinable(outer, inner, node):
        return False
    dims = [_join_dims(one, other) for one, other in zip(outer.dims, inner.dims, strict=True)]
    if not _saves_work(outer, inner, dims):
        return False
    with inserting_calls_before(graph, node):
        new = insert_pool(graph, inner.source, inner, dims)
        if new is None:
            return False
        if result_shape(new) != result_shape(node):
            erase_unused(graph, new)
            return False
        return replace_value(graph, node, new)


def _are_joinable(outer: Pool, inner: Pool, node: fx.Node) -> bool:
    if any(dim.padding or dim.dilation > 1 or dim.bounds(dim.size - 1)[1] >= dim.length for dim in outer.dims):
        return False
    if any(dim.dilation > 1 or dim.stride > dim.size for dim in inner.dims):
        return False
    if not outer.is_average:
        return True
    is_even = not outer.divisor and not inner.divisor and tensor_of(node).dtype in FULL_PRECISION_DTYPES
    return is_even and all(
        dim.stride == dim.size and not dim.padding and dim.bounds(dim.size - 1)[1] < dim.length for dim in inner.dims
    )


def _join_dims(outer: PoolDim, inner: PoolDim) -> PoolDim:
    size = inner.stride * (outer.size - 1) + inner.size
    return PoolDim(inner.length, outer.outputs, size, inner.stride * outer.stride, inner.padding, 1)


def _saves_work(outer: Pool, inner: Pool, dims: list[PoolDim]) -> bool:
    """Whether as many elements are read as by both poolings, and stored by the inner one, or fewer."""

    def reads(pool_dims: tuple[PoolDim, ...] | list[PoolDim]) -> int:
        return prod(dim.outputs * dim.size for dim in pool_dims)

    return reads(dims) <= reads(outer.dims) + reads(inner.dims) + prod(dim.outputs for dim in inner.dims)
