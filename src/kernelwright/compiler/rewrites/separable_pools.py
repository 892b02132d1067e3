"""A pooling with large windows that overlap is one of rows of its windows, and then one of columns of the results."""

from __future__ import annotations

from math import prod

from torch import fx

from kernelwright.compiler.regions.nodes import result_shape
from kernelwright.compiler.regions.pool_lowering import MAX_WINDOW_LOADS
from kernelwright.compiler.regions.pooling import Pool, PoolDim
from kernelwright.compiler.rewrites.pools import find_pool, insert_pool
from kernelwright.compiler.rewrites.rewriting import (
    FULL_PRECISION_DTYPES,
    erase_unused,
    inserting_calls_before,
    replace_value,
    tensor_of,
)


def separate_pools(graph: fx.Graph) -> int:
    """Replace, in place, poolings with large windows that overlap by one pooling along each dimension, where that reads
    fewer elements; return how many.

    Proof: a window is the product of the windows along each dimension, padding included, so that the maximum over it is
    that of the maxima of its rows; and the number of elements that an average counts is the product of the numbers
    along each dimension.
    """
    return sum(_separate(graph, node) for node in list(graph.nodes) if not node._erased)


def _separate(graph: fx.Graph, node: fx.Node) -> bool:
    pool = find_pool(node)
    if pool is None or pool.window_size <= MAX_WINDOW_LOADS or not any(dim.overlaps for dim in pool.dims):
        return False
    if pool.is_average and tensor_of(node).dtype not in FULL_PRECISION_DTYPES:
        return False
    passes = _plan_passes(pool)
    if 2 * sum(map(_num_reads, passes)) > _num_reads(pool.dims):
        return False
    with inserting_calls_before(graph, node):
        value: fx.Node | None = pool.source
        for number, dims in enumerate(passes):
            if value is not None:
                is_last = number == len(passes) - 1
                value = insert_pool(graph, value, pool, dims, (pool.divisor if is_last else 1) if pool.divisor else 0)
        if value is None:
            return False
        if result_shape(value) != result_shape(node):
            erase_unused(graph, value)
            return False
        return replace_value(graph, node, value)


def _plan_passes(pool: Pool) -> list[tuple[PoolDim, ...]]:
    """The windows of one pooling for each dimension, the last first: there memory is contiguous."""
    rank, passes = len(pool.dims), []
    for at in reversed(range(rank)):
        dims = [
            dim if other == at else _whole(dim.length if other < at else dim.outputs)
            for other, dim in enumerate(pool.dims)
        ]
        if pool.dims[at].size > 1 or pool.dims[at].outputs != pool.dims[at].length:
            passes.append(tuple(dims))
    return passes


def _whole(length: int) -> PoolDim:
    """Windows of one element each."""
    return PoolDim(length, length, 1, 1, 0, 1)


def _num_reads(dims: tuple[PoolDim, ...]) -> int:
    return prod(dim.outputs * dim.size for dim in dims)
