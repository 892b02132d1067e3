"""All graph rewrites in the order in which they are applied; each can be disabled by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from torch import fx

from kernelwright.compiler.rewrites.affine_folding import fold_affine_chains
from kernelwright.compiler.rewrites.attention import recognize_attention
from kernelwright.compiler.rewrites.attention_products import unfold_large_attention
from kernelwright.compiler.rewrites.concat_sinking import sink_concats
from kernelwright.compiler.rewrites.costs import estimate_work
from kernelwright.compiler.rewrites.degenerate import count_degenerate_results, replace_degenerate_results
from kernelwright.compiler.rewrites.depthwise_convolutions import mark_depthwise_convolutions
from kernelwright.compiler.rewrites.diagonals import gather_diagonals
from kernelwright.compiler.rewrites.einsum_paths import order_einsums
from kernelwright.compiler.rewrites.einsums import replace_einsums
from kernelwright.compiler.rewrites.equal_products import join_equal_products
from kernelwright.compiler.rewrites.increasing_functions import pool_before_functions
from kernelwright.compiler.rewrites.linear_reductions import reduce_linear_maps
from kernelwright.compiler.rewrites.means import fuse_means
from kernelwright.compiler.rewrites.padding_sinking import sink_padding
from kernelwright.compiler.rewrites.pointwise_pools import pool_before_pointwise
from kernelwright.compiler.rewrites.pool_chains import join_pools
from kernelwright.compiler.rewrites.pooled_convolutions import compose_pooled_convolutions
from kernelwright.compiler.rewrites.query_attention import split_query_attention
from kernelwright.compiler.rewrites.repeated_work import remove_repeated_work
from kernelwright.compiler.rewrites.row_products import mark_row_products
from kernelwright.compiler.rewrites.row_sums import reduce_rows_first
from kernelwright.compiler.rewrites.scaled_products import separate_scaled_products
from kernelwright.compiler.rewrites.scan_slicing import slice_cumsums
from kernelwright.compiler.rewrites.separable_pools import separate_pools
from kernelwright.core.errors import UsageError
from kernelwright.core.optimization import AppliedRewrite

Sources = Mapping[fx.Node, Any]
"""The `capture.Source` of each placeholder."""


@dataclass(frozen=True)
class Rewrite:
    """A rewrite of the captured graph that keeps its results for all inputs, up to rounding.

    Attributes:
        name: that of its module; `kw optimize --without NAME` disables it.
        description: what it does, as one line.
        apply: rewrites a graph in place, and returns the number of places that it changed.
    """

    name: str
    description: str
    apply: Callable[[fx.Graph, Sources], int]


def _graph_only(function: Callable[[fx.Graph], int]) -> Callable[[fx.Graph, Sources], int]:
    return lambda graph, sources: function(graph)


DEGENERATE, DEGENERATE_CONSTANTS, ROW_PRODUCTS = "degenerate", "degenerate_constants", "row_products"
DEPTHWISE_CONVOLUTIONS = "depthwise_convolutions"
MARKS = frozenset({DEGENERATE, DEPTHWISE_CONVOLUTIONS, ROW_PRODUCTS})
"""These leave the graph as it is: they mark or count."""
REWRITES = (
    Rewrite(
        DEGENERATE,
        "the result does not depend on the arguments, as long as they are finite",
        count_degenerate_results,
    ),
    Rewrite(
        DEGENERATE_CONSTANTS, "results that do not depend on the arguments become constants", replace_degenerate_results
    ),
    Rewrite(
        "repeated_work",
        "what is computed twice, or has no effect, is computed once or not at all",
        _graph_only(remove_repeated_work),
    ),
    Rewrite(
        "einsum_paths",
        "einsums become products of two tensors, in the order that moves the fewest bytes",
        _graph_only(order_einsums),
    ),
    Rewrite("einsums", "an einsum of matrices becomes a product", _graph_only(replace_einsums)),
    Rewrite(
        "scaled_products",
        "a scaled sum with a product becomes a product and its epilogue",
        _graph_only(separate_scaled_products),
    ),
    Rewrite(
        "attention",
        "attention that is spelled out becomes scaled_dot_product_attention",
        _graph_only(recognize_attention),
    ),
    Rewrite(
        "attention_products",
        "attention with heads too large for torch's fused kernels becomes two products",
        _graph_only(unfold_large_attention),
    ),
    Rewrite("means", "a sum divided by its count becomes a mean", _graph_only(fuse_means)),
    Rewrite("padding_sinking", "a convolution pads its input itself", _graph_only(sink_padding)),
    Rewrite("linear_reductions", "the input of a linear map is summed instead of its output", reduce_linear_maps),
    Rewrite(
        "increasing_functions",
        "the maximum of windows is taken before an increasing function",
        _graph_only(pool_before_functions),
    ),
    Rewrite(
        "pointwise_pools",
        "the input of a 1x1 convolution is pooled instead of its output",
        _graph_only(pool_before_pointwise),
    ),
    Rewrite("pool_chains", "a pooling of a pooling becomes one pooling", _graph_only(join_pools)),
    Rewrite(
        "pooled_convolutions",
        "a convolution and the average pooling of its output become one convolution",
        _graph_only(compose_pooled_convolutions),
    ),
    Rewrite(
        DEPTHWISE_CONVOLUTIONS,
        "depthwise convolutions become sums of weighted elements",
        _graph_only(mark_depthwise_convolutions),
    ),
    Rewrite(
        "affine_folding",
        "factors and shifts of the channels become part of the weight and bias",
        fold_affine_chains,
    ),
    Rewrite(
        "separable_pools",
        "a pooling with large windows becomes one along each dimension",
        _graph_only(separate_pools),
    ),
    Rewrite("equal_products", "products with the same input become one product", join_equal_products),
    Rewrite("diagonals", "the diagonal of a computed matrix becomes a gather", _graph_only(gather_diagonals)),
    Rewrite("scan_slicing", "slices of a cumulative sum are computed alone", _graph_only(slice_cumsums)),
    Rewrite("row_sums", "a sum sums each row where it is computed", _graph_only(reduce_rows_first)),
    Rewrite("concat_sinking", "concatenations move after the computation on them", _graph_only(sink_concats)),
    Rewrite(
        "query_attention",
        "attention of one query becomes products of rows and a softmax",
        _graph_only(split_query_attention),
    ),
    Rewrite(ROW_PRODUCTS, "products of one row become sums over the rows of a matrix", _graph_only(mark_row_products)),
)
OFF_BY_DEFAULT = frozenset({DEGENERATE_CONSTANTS})
ALL_REWRITES = frozenset(rewrite.name for rewrite in REWRITES)


def select_disabled(without: Sequence[str], rewrite_degenerate: bool = False) -> frozenset[str]:
    """Return the names of the rewrites that are not applied.

    Raises:
        UsageError: a name is not that of a rewrite.
    """
    names = [rewrite.name for rewrite in REWRITES]
    for name in without:
        if name not in names:
            raise UsageError(f"--without {name!r}: there is no such rewrite", next=f"one of {', '.join(names)}")
    return frozenset(without) | (frozenset() if rewrite_degenerate else OFF_BY_DEFAULT)


def apply_rewrites(graph: fx.Graph, sources: Sources, disabled: Set[str]) -> tuple[AppliedRewrite, ...]:
    """Apply all rewrites but the disabled ones to a graph, in place.

    Args:
        graph: core ATen operators, functional, with a fake tensor in the `meta["val"]` of every node.
        disabled: names of rewrites.
    Returns:
        Those that changed something.
    """
    applied, before = [], estimate_work(graph.nodes)
    for rewrite in REWRITES:
        if rewrite.name in disabled:
            continue
        if count := rewrite.apply(graph, sources):
            after = estimate_work(graph.nodes)
            applied.append(
                AppliedRewrite(
                    name=rewrite.name,
                    count=count,
                    description=rewrite.description,
                    flops_saved=before.flops - after.flops,
                    bytes_saved=before.bytes_moved - after.bytes_moved,
                )
            )
            before = after
    return tuple(applied)
