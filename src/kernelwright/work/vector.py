"""FLOPs of all operators except matrix operators, as tables of the cost per element.

One arithmetic operation, comparison or selection is 1, a copied or filled element 0. A special function counts as about
as many operations as a machine spends on it: on x86 with AVX, exp is a polynomial of four multiply-adds; on Hopper the
special function unit has one sixteenth of the multiply-add rate.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2, prod

from kernelwright.core.work import OperatorKind
from kernelwright.work.calls import OperatorCall, OperatorSchema, shape_of

VectorFormula = tuple[OperatorKind, Callable[[OperatorCall], int]]

EXP = 8
POINTWISE = {
    "exp": EXP, "exp2": EXP, "expm1": EXP, "log": EXP, "log2": EXP, "log10": EXP, "log1p": EXP,
    "sin": EXP, "cos": EXP, "tan": 10, "asin": 10, "acos": 10, "atan": 10, "atan2": 12, "sinh": 10, "cosh": 10,
    "tanh": EXP + 2, "sigmoid": EXP + 2, "log_sigmoid_forward": EXP + 4, "softplus": 2 * EXP, "erf": 10, "erfc": 10,
    "erfinv": 16, "lgamma": 20, "digamma": 20, "logaddexp": 2 * EXP + 3, "polar": 2 * EXP + 2,
    "sqrt": 4, "rsqrt": 4, "reciprocal": 4, "pow": 2 * EXP, "float_power": 2 * EXP,
    "silu": EXP + 3, "gelu": 14, "elu": EXP + 3, "celu": EXP + 3, "selu": EXP + 3, "mish": 2 * EXP + 4,
    "hardsigmoid": 4, "hardswish": 5, "hardtanh": 2, "clamp": 2, "glu": EXP + 3,
    "silu_backward": EXP + 6, "gelu_backward": EXP + 14, "sigmoid_backward": 3, "tanh_backward": 3,
    "threshold_backward": 2, "dropout_backward": 2, "softplus_backward": EXP + 3, "elu_backward": EXP + 3,
    "hardswish_backward": 5, "hardtanh_backward": 3, "glu_backward": EXP + 6, "log_sigmoid_backward": EXP + 4,
    "addcmul": 3, "addcdiv": 3, "lerp": 3, "isfinite": 2, "isclose": 4, "isin": 1,
    "prelu_kernel_backward": 3, "mse_loss_backward": 3, "smooth_l1_loss_backward": 5, "huber_loss_backward": 5,
    "binary_cross_entropy_backward": 6, "soft_margin_loss_backward": EXP + 4,
    "fake_quantize_per_tensor_affine_cachemask": 5, "quantize_per_tensor": 3, "dequantize": 2, "nll_loss_backward": 1,
}  # fmt: skip
"""Per output element; a pointwise operator that is not listed costs 1."""

SPECIAL_FUNCTIONS = {
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "sigmoid", "log_sigmoid_forward", "softplus", "erf", "erfc", "erfinv", "logaddexp", "silu",
    "gelu", "elu", "celu", "selu", "mish", "glu", "silu_backward", "gelu_backward", "softplus_backward",
    "elu_backward", "glu_backward", "log_sigmoid_backward", "logsumexp", "softmax", "log_softmax",
    "log_softmax_backward", "logcumsumexp", "binary_cross_entropy", "binary_cross_entropy_with_logits",
}  # fmt: skip
"""Operators whose arithmetic is mostly special functions: counted in a separate unit, `special/float32`, since
libraries reach only a few per cent of the multiply-add rate in them."""

POINTWISE_UNTAGGED = {
    "add", "sub", "mul", "div", "rsub", "neg", "abs", "relu", "where", "masked_fill", "tril", "triu", "eq", "ne",
    "lt", "le", "gt", "ge", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
    "logical_and", "logical_or", "logical_not", "logical_xor", "sign", "floor", "ceil", "round", "trunc", "frac",
    "remainder", "fmod", "floor_divide", "isnan", "isinf", "threshold", "leaky_relu", "leaky_relu_backward",
    "complex", "conj_physical", "copysign", "xlogy", "heaviside", "gcd", "lcm", "prelu_kernel", "hardshrink",
    "softshrink", "softshrink_backward", "hardshrink_backward", "bitwise_left_shift", "bitwise_right_shift",
    "nan_to_num", "square", "angle", "fmax", "fmin", "clamp_min", "clamp_max",
}  # fmt: skip
"""Pointwise operators that some torch releases do not tag as such."""

FILLS = {
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "fill",
    "zero", "arange", "linspace", "logspace", "eye", "scalar_tensor", "tril_indices", "triu_indices", "range",
    "efficientzerotensor", "fill_mem_eff_dropout_mask", "iota",
}  # fmt: skip

RANDOM = {
    "rand": 10, "randn": 20, "rand_like": 10, "randn_like": 20, "randint": 10, "randint_like": 10, "randperm": 10,
    "normal": 20, "uniform": 10, "bernoulli": 11, "random": 10, "exponential": 18, "log_normal": 30, "cauchy": 20,
    "geometric": 20, "dropout": 12, "fused_dropout": 12, "poisson": 30, "multinomial": 20, "normal_functional": 20,
}  # fmt: skip
"""Per output element: a counter-based random number takes ten integer operations."""

REDUCTIONS = {
    "sum": 1, "mean": 1, "prod": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "aminmax": 2, "argmax": 1, "argmin": 1,
    "any": 1, "all": 1, "nansum": 2, "count_nonzero": 1, "trace": 1, "norm": 2, "linalg_vector_norm": 2, "dist": 3,
    "var": 4, "std": 4, "var_mean": 4, "std_mean": 4, "logsumexp": EXP + 3, "equal": 1, "is_all_true": 1,
    "is_any_true": 1, "softmax": EXP + 4, "log_softmax": EXP + 4, "softmax_backward": 4,
    "log_softmax_backward": EXP + 4,
    "layer_norm": 8, "layer_norm_backward": 14, "rms_norm": 5, "rms_norm_backward": 11, "group_norm": 8,
    "group_norm_backward": 14, "batch_norm": 8, "batch_norm_backward": 14, "mse_loss": 3, "smooth_l1_loss": 6,
    "huber_loss": 6, "binary_cross_entropy": 2 * EXP + 5, "binary_cross_entropy_with_logits": 2 * EXP + 6,
    "soft_margin_loss": 2 * EXP + 2, "bincount": 1, "histc": 3, "unfold_backward": 1,
    "amp_foreach_non_finite_check_and_unscale": 3, "weight_norm_interface": 3, "weight_norm_interface_backward": 6,
}  # fmt: skip
"""Per element of the first input."""

SCANS = {"cumsum": 1, "cumprod": 1, "cummax_helper": 1, "cummin_helper": 1, "logcumsumexp": 2 * EXP}
SORTS = {
    "sort", "topk", "kthvalue", "median", "nanmedian", "mode", "unique", "unique2", "unique_dim", "unique_consecutive",
}  # fmt: skip
FFTS = {"fft_c2c", "fft_r2c", "fft_c2r"}

COPIES = {
    "copy", "clone", "to", "cat", "stack", "constant_pad_nd", "repeat", "roll", "flip", "rot90", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter",
    "select_backward", "slice_backward", "diagonal_backward", "diag_embed", "lift_fresh_copy", "narrow_copy",
    "copy_from", "copy_from_and_resize", "pin_memory", "im2col", "block_diag", "chunk_cat", "reflection_pad1d",
    "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "repeat_interleave", "lazy_clone", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
}  # fmt: skip
GATHERS = {
    "embedding", "index", "index_select", "gather", "take", "masked_select", "index_copy", "index_fill", "scatter",
    "masked_scatter", "nonzero", "index_put", "put", "nonzero_static", "embedding_renorm", "unsafe_masked_index",
}  # fmt: skip
SCATTER_ADD_ARGUMENTS = {
    "embedding_dense_backward": "grad_output", "index_add": "source", "scatter_add": "src", "scatter_reduce": "src",
    "index_reduce": "source",
}  # fmt: skip
"""One operation per element of this argument."""

METADATA = {
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize", "resize_as",
    "set", "detach", "lift", "lift_fresh", "is_same_size", "record_stream", "assert_async", "assert_scalar",
    "assert_tensor_metadata", "functional_assert_async", "sym_size", "sym_stride", "sym_numel", "sym_storage_offset",
    "sym_constrain_range", "sym_constrain_range_for_size", "fused_sdp_choice", "is_pinned", "is_set_to", "size",
    "stride", "numel", "dim", "storage_offset", "is_contiguous", "resize_output", "has_same_storage_numel",
    "retain_grad", "use_cudnn_ctc_loss", "debug_has_internal_overlap", "nested_tensor_size", "propagate_xla_data",
    "is_coalesced", "device", "layout", "cudnn_rnn_flatten_weight", "conj", "neg_view", "version", "requires_grad_",
}  # fmt: skip
"""Calls that move no element: they allocate, inspect, or change a tensor's metadata."""

ZERO_FLOP_OPS: dict[OperatorKind, set[str]] = {"view": METADATA, "copy": COPIES, "gather": GATHERS, "pointwise": FILLS}
"""Operators without arithmetic, by kind."""

POOLS = {"avg_pool2d": 2, "avg_pool3d": 3, "max_pool2d": 2, "max_pool3d": 3}
"""Number of dimensions of the window; each element in it costs 1."""

FLOPS_PER_INPUT = {
    "adaptive_avg_pool2d": 1, "adaptive_avg_pool3d": 1, "adaptive_max_pool2d": 1, "avg_pool2d_backward": 1,
    "max_pool2d_backward": 1, "adaptive_avg_pool2d_backward": 1, "upsample_nearest2d_backward": 1, "col2im": 1,
    "adaptive_max_pool2d_backward": 1, "reflection_pad1d_backward": 1, "reflection_pad2d_backward": 1,
    "reflection_pad3d_backward": 1, "replication_pad1d_backward": 1, "replication_pad2d_backward": 1,
    "replication_pad3d_backward": 1, "upsample_bilinear2d_backward": 11, "grid_sampler_2d_backward": 40,
}  # fmt: skip
FLOPS_PER_OUTPUT = {"upsample_bilinear2d": 11, "upsample_linear1d": 5, "upsample_bicubic2d": 40, "grid_sampler_2d": 20,
              "upsample_trilinear3d": 23, "searchsorted": 16, "bucketize": 8, "embedding_bag": 1}  # fmt: skip
OPTIMIZERS = {"fused_adam": 16, "fused_adamw": 16, "fused_sgd": 5, "fused_adagrad": 10}
"""Per parameter: the moments, their correction, the square root, the step and the decay."""

COMPLEX_FACTORS = {
    "mul": 6, "square": 6, "pow": 6, "prod": 6, "cumprod": 6, "foreach_mul": 6, "div": 11, "foreach_div": 11,
    "reciprocal": 1, "complex": 1, "polar": 1, "fft_c2c": 1, "fft_r2c": 1, "fft_c2r": 1,
}  # fmt: skip
"""Factor on the tables above for complex numbers; 2, one for each part, if not listed."""


def find_vector_formula(signature: OperatorSchema) -> VectorFormula | None:
    """Kind and cost of an operator; None if it is in no table and torch does not tag it as pointwise."""
    key = signature.key
    if "inplace_view" in signature.tags:
        return "view", _zero_flops
    for kind, names in ZERO_FLOP_OPS.items():
        if key in names:
            return kind, _zero_flops
    formula = _find_formula(key) or _formula_from_tags(signature)
    return (formula[0], _scale_for_complex(formula[1])) if formula else None


def _scale_for_complex(count: Callable[[OperatorCall], int]) -> Callable[[OperatorCall], int]:
    return lambda call: count(call) * (COMPLEX_FACTORS.get(call.schema.key, 2) if call.is_complex else 1)


def _find_formula(key: str) -> VectorFormula | None:
    if key.startswith("foreach_"):
        return _foreach_formula(key.removeprefix("foreach_"))
    if key == "pow":
        return "pointwise", _power
    if key in POINTWISE or key in POINTWISE_UNTAGGED:
        return "pointwise", _per_output(POINTWISE.get(key, 1))
    if key in RANDOM:
        return "random", _per_output(RANDOM[key])
    if key in REDUCTIONS or key == "nll_loss":
        return "reduction", _per_argument("target", 2) if key == "nll_loss" else _per_input(REDUCTIONS[key])
    if key in SCANS:
        return "scan", _per_input(SCANS[key])
    if key in SCATTER_ADD_ARGUMENTS:
        return "gather", _per_argument(SCATTER_ADD_ARGUMENTS[key], 1)
    return _find_other_formula(key)


def _find_other_formula(key: str) -> VectorFormula | None:
    if key == "item":
        return "other", _zero_flops
    if key in SORTS:
        return "other", _sort
    if key in ("cdist_forward", "cdist_backward"):
        return "other", _cdist
    if key in FFTS:
        return "other", _fft
    if key in POOLS:
        return "other", lambda call: call.out_numel * call.window_numel("kernel_size", POOLS[key])
    if key in FLOPS_PER_INPUT:
        return "other", _per_input(FLOPS_PER_INPUT[key])
    if key in FLOPS_PER_OUTPUT:
        return "gather", _per_output(FLOPS_PER_OUTPUT[key])
    if key in OPTIMIZERS:
        return "pointwise", _per_argument("self", OPTIMIZERS[key])
    return None


def _formula_from_tags(signature: OperatorSchema) -> VectorFormula | None:
    if signature.key.endswith("_copy"):
        return "copy", _zero_flops
    if "pointwise" in signature.tags:
        return "pointwise", _per_output(1)
    return ("reduction", _per_input(1)) if "reduction" in signature.tags else None


def _foreach_formula(base: str) -> VectorFormula:
    """The formula of the operator of this name applied to each tensor of a list."""
    if base in ("copy", "zero"):
        return "copy" if base == "copy" else "pointwise", _zero_flops
    cost = REDUCTIONS.get(base) or POINTWISE.get(base, 1)
    return "pointwise" if base not in REDUCTIONS else "reduction", _per_argument("self", cost)


def _zero_flops(call: OperatorCall) -> int:
    return 0


def _per_output(cost: int) -> Callable[[OperatorCall], int]:
    return lambda call: cost * call.out_numel


def _per_argument(name: str, cost: int) -> Callable[[OperatorCall], int]:
    return lambda call: cost * call.numel(name)


def _per_input(cost: int) -> Callable[[OperatorCall], int]:
    """Per element of the first input tensor."""

    def count(call: OperatorCall) -> int:
        return cost * prod(shape_of(call.inputs[0])) if call.inputs else 0

    return count


def _power(call: OperatorCall) -> int:
    """Small integer exponents are multiplications, 0.5 is a square root."""
    exponent = call["exponent"]
    if not isinstance(exponent, (int, float)):
        return call.out_numel * POINTWISE["pow"]
    if exponent in (2, 3, 4):
        return call.out_numel * (1 if exponent == 2 else 2)
    return call.out_numel * (POINTWISE["sqrt"] if exponent in (0.5, -0.5) else POINTWISE["pow"])


def _sort(call: OperatorCall) -> int:
    """n log2 n comparisons in each row."""
    shape = call.shape("self")
    dim = call["dim"]
    row = shape[dim] if isinstance(dim, int) and shape else prod(shape)
    return prod(shape) * ceil(log2(row)) if row > 1 else 0


def _cdist(call: OperatorCall) -> int:
    """Difference, power and sum over the width of each pair of points; backward has as many pairs."""
    return 3 * prod(call.shape("x1")) * call.shape("x2")[-2]


def _fft(call: OperatorCall) -> int:
    """5 n log2 n, the conventional count, over the transformed dimensions."""
    shape = call.shape("self")
    dims = call["dim"]
    length = prod(shape[d] for d in dims)
    return ceil(5 * prod(shape) * log2(length)) if length > 1 else 0
