"""The torch operators that a region supports, and the step of each.

The graph is decomposed before (`capture.DECOMPOSED`), so this table is short: arithmetic, comparisons, selection,
conversions, reductions. Any other operator ends a region and stays with torch.
"""

from __future__ import annotations

import operator

import torch

POINTWISE: dict[str, str] = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "div", "neg": "neg", "abs": "abs", "rsub": "rsub",
    "minimum": "min", "maximum": "max", "fmin": "fmin", "fmax": "fmax", "remainder": "remainder", "fmod": "fmod",
    "floor": "floor", "ceil": "ceil", "round": "round", "trunc": "trunc", "sign": "sign", "sgn": "sign",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "reciprocal": "reciprocal", "square": "square",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh", "asin": "asin",
    "acos": "acos", "atan": "atan", "sigmoid": "sigmoid", "erf": "erf", "erfc": "erfc", "pow": "pow",
    "relu": "relu", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne",
    "logical_and": "and", "logical_or": "or", "logical_not": "not", "logical_xor": "xor",
    "bitwise_and": "bit_and", "bitwise_or": "bit_or", "bitwise_not": "bit_not", "bitwise_xor": "bit_xor",
    "isnan": "isnan", "isinf": "isinf", "where": "where", "clamp": "clamp", "clamp_min": "max", "clamp_max": "min",
}  # fmt: skip
"""Step by the name of the operator packet; operands in torch's order."""
CONVERSIONS = ("_to_copy", "convert_element_type", "clone", "alias", "detach", "lift_fresh_copy")
VIEWS = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "alias")
VIEWS += ("broadcast_in_dim", "detach")
ATEN_REDUCTIONS: dict[str, str] = {
    "sum": "sum", "prod": "prod", "amax": "max", "amin": "min", "any": "any", "all": "all", "argmax": "argmax",
    "argmin": "argmin", "mean": "mean",
}  # fmt: skip
DEVIATIONS = ("std", "std_mean")
VARIANCES = ("var", "var_mean", *DEVIATIONS)
MINMAX_WITH_INDEX = {"max": "max", "min": "min"}
COMPARISONS = frozenset(["lt", "le", "gt", "ge", "eq", "ne", "isnan", "isinf"])
LOGICAL = frozenset(["and", "or", "not", "xor"])
CONSTANTS = ("full", "scalar_tensor", "zeros", "ones", "full_like", "zeros_like", "ones_like")
SCANS = {"cumsum": "sum", "cumprod": "prod"}
SLICE_OPS = ("slice", "select", "narrow", "diagonal")
"""Views of a slice of a tensor."""
SPLIT_OPS = ("split", "split_with_sizes", "unbind", "chunk")
"""Operators that return several slices of a tensor."""
PAD = "constant_pad_nd"
MAX_POOLS = {
    "max_pool2d_with_indices": 2, "max_pool3d_with_indices": 3, "adaptive_max_pool2d": 2, "adaptive_max_pool3d": 3,
}  # fmt: skip
AVERAGE_POOLS = {"avg_pool2d": 2, "avg_pool3d": 3, "_adaptive_avg_pool2d": 2, "_adaptive_avg_pool3d": 3}
POOLS = MAX_POOLS | AVERAGE_POOLS
"""Number of pooled dimensions, the last ones, by the name of the operator."""
SUPPORTED_OPS = frozenset((*POINTWISE, *CONVERSIONS, *VIEWS, *ATEN_REDUCTIONS, *VARIANCES, *MINMAX_WITH_INDEX, *SCANS))
SUPPORTED_OPS |= {"gather", "getitem", "cat", *POOLS}
"""Operators that a region can compute."""


def op_name(target: object) -> str:
    """Return the packet name of an operator: `add` for `aten.add.Tensor`; empty if it is not a torch operator."""
    if target is operator.getitem:
        return "getitem"
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return ""
    return target._schema.name.split("::")[1]


_READS = "needs data-dependent indexing (gather), which is not supported in regions"
_WRITES = "needs data-dependent indexing (scatter), which is not supported in regions"
_PRODUCT = "is a matrix product"
_CONVOLUTION = "is a convolution"
_WINDOWS = "needs windows, padding or interpolation with an index, which are not supported in regions"
_RANDOM = "draws random numbers, which have to be those of torch's generator"
_SIZED = "has a data-dependent output shape"
_SORTS = "needs sorting, which is not supported in regions"
_REASONS: dict[str, str] = {
    _READS: "index _unsafe_index index_select embedding take take_along_dim",
    _WRITES: "index_put index_put_ _unsafe_index_put index_add index_copy scatter scatter_add scatter_reduce put "
    "masked_scatter embedding_dense_backward max_unpool2d max_unpool3d histc bincount",
    "reduces segments of variable length": "_embedding_bag _embedding_bag_forward_only embedding_bag segment_reduce",
    _PRODUCT: "mm bmm addmm baddbmm linear matmul einsum addmv mv dot",
    _CONVOLUTION: "convolution conv1d conv2d conv3d _convolution",
    "is a recurrence": "lstm gru rnn_tanh rnn_relu",
    "is attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu",
    _WINDOWS: "fractional_max_pool2d fractional_max_pool3d im2col "
    "col2im reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d "
    "replication_pad3d upsample_nearest2d upsample_bilinear2d upsample_bicubic2d upsample_linear1d "
    "upsample_trilinear3d grid_sampler_2d",
    _RANDOM: "native_dropout bernoulli rand randn randint randperm rand_like randn_like normal uniform multinomial",
    _SIZED: "nonzero masked_select unique _unique2 unique_consecutive",
    _SORTS: "sort topk kthvalue median cummax cummin searchsorted bucketize",
}
UNSUPPORTED_REASONS = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""By operator name, why no region supports it."""


def explain_unsupported(target: object) -> str:
    """Explain why no region supports an operator."""
    return f"{target} {UNSUPPORTED_REASONS.get(op_name(target), 'is not pointwise, a reduction or a view')}"
