"""Properties of the nodes of a captured graph: shapes, dtypes, dimensions, literals and memory layout.

torch.fx types every argument as a union of all that a graph can hold; the operator's schema determines the actual type.
The `type: ignore` comments here, in `lowering`, `concat_boundaries` and `concat_rewrites` rely on it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import fx

from kernelwright.compiler.capture.target_device import runs_on_cpu
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.operators import (
    CONSTANTS,
    CONVERSIONS,
    PAD,
    SCANS,
    SLICE_OPS,
    SPLIT_OPS,
    SUPPORTED_OPS,
    VIEWS,
    op_name,
)
from kernelwright.compiler.regions.region import Operand
from kernelwright.core.units import DTYPE_BYTES

DEPTHWISE = "depthwise"
"""Key in the meta of a depthwise convolution that a region computes: see `depthwise`."""
FULL_PRECISION = "full_precision"
"""Key in the meta of a convolution, made by a rewrite, whose operands a kernel does not round to TF32."""
READ_AS_FP32 = "read_wide"
"""Key in the meta of a node that casts an FP32 tensor to half precision: a region reads the FP32 tensor instead."""
ROW_PRODUCT = "row_product"
"""Key in the meta of a matrix product that a region computes: see `row_products`."""


def stored_strides(node: fx.Node) -> tuple[int, ...]:
    """Return the strides in which a node's value is stored: its own if its memory is dense."""
    value = node.meta["val"]
    return _dense_strides(tuple(map(int, value.shape)), tuple(map(int, value.stride())))


@lru_cache(4096)
def _dense_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    return torch.empty_like(torch.empty_strided(shape, strides, device="meta")).stride()


def is_rematerializable(node: fx.Node) -> bool:
    """Whether each user can recompute a node for free: a constant, an arange, or a view of a region's input."""
    return is_constant_or_range(node) or is_strided_view(node)


def is_constant_or_range(node: Any) -> bool:
    """Whether a node is a constant or an arange, or a view of one."""
    if not isinstance(node, fx.Node):
        return False
    name = op_name(node.target)
    return name in (*CONSTANTS, "arange", "iota") or (name in VIEWS and is_constant_or_range(node.args[0]))


def is_strided_view(node: fx.Node) -> bool:
    """Whether a region reads a node as a strided view of another tensor: a slice, a flip, a padded tensor, a view of a
    tensor that no region computes, or a value read in FP32."""
    name = op_name(node.target)
    if name == "flip":
        return match_flipped_scan(node) is None
    if name in (*SLICE_OPS, *SPLIT_OPS, PAD) or READ_AS_FP32 in node.meta:
        return True
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node) or is_constant_or_range(node):
        return False
    if name == "getitem":
        return op_name(source.target) in SPLIT_OPS
    return name in VIEWS and (is_strided_view(source) or _is_external(source))


def resolve_view(node: fx.Node) -> tuple[fx.Node, tuple[int, ...], int]:
    """Return (base tensor, strides, offset) of a node's memory, in elements; see `padding` for padded tensors, which
    are base tensors here.

    Raises:
        Unsupported: a slice of a flipped tensor.
    """
    if not is_strided_view(node) or op_name(node.target) == PAD:
        return node, tuple(int(stride) for stride in node.meta["val"].stride()), 0
    source = node_arg(node, 0)
    name = op_name(node.target)
    if name == "flip":
        return _flipped_memory(node, source)
    if name == "getitem":
        source = node_arg(source, 0)
    root, base, offset = resolve_view(source)
    if any(stride < 0 for stride in base):
        raise Unsupported(f"a slice of {source.name}, which has negative strides")
    relative = int(node.meta["val"].storage_offset()) - int(source.meta["val"].storage_offset())
    return root, tuple(int(stride) for stride in node.meta["val"].stride()), offset + relative


def _flipped_memory(node: fx.Node, source: fx.Node) -> tuple[fx.Node, tuple[int, ...], int]:
    root, base, offset = resolve_view(source)
    if not base:
        return root, base, offset
    flipped = {int(d) % len(base) for d in node.args[1]}  # type: ignore[union-attr]
    sizes = shape_of(source)
    offset += sum((sizes[d] - 1) * base[d] for d in flipped)
    return root, tuple(-stride if d in flipped else stride for d, stride in enumerate(base)), offset


def match_flipped_scan(node: Any) -> tuple[fx.Node, int] | None:
    """Return (scan, dimension) if a node is flip(scan(flip(x))) along that dimension, which is a reverse scan."""
    if not isinstance(node, fx.Node) or op_name(node.target) != "flip":
        return None
    scan = node.args[0]
    if isinstance(scan, fx.Node) and op_name(scan.target) in SCANS and (reversed_scan := match_reversed_scan(scan)):
        return (scan, reversed_scan[1]) if _flip_dims(node) == [reversed_scan[1]] else None
    return None


def match_reversed_scan(scan: fx.Node) -> tuple[fx.Node, int] | None:
    """Return (x, dimension) if a node is scan(flip(x)) along that dimension."""
    source, rank = node_arg(scan, 0), len(shape_of(scan))
    dim = dim_arg(scan, 1, rank)
    if op_name(source.target) == "flip" and _flip_dims(source) == [dim]:
        return node_arg(source, 0), dim
    return None


def _flip_dims(node: fx.Node) -> list[int]:
    return [int(d) % len(shape_of(node)) for d in node.args[1]]  # type: ignore[union-attr]


def _is_external(node: fx.Node) -> bool:
    """Whether no region can compute a node."""
    supported = op_name(node.target) in SUPPORTED_OPS or not node.meta.keys().isdisjoint((ROW_PRODUCT, DEPTHWISE))
    return node.op != "call_function" or not supported


def node_arg(node: fx.Node, index: int) -> fx.Node:
    """Return an argument that is a node.

    Raises:
        Unsupported: it is a literal.
    """
    arg = node.args[index]
    if not isinstance(arg, fx.Node):
        raise Unsupported(f"{node.target} of {arg!r}")
    return arg


def dim_arg(node: fx.Node, index: int, rank: int) -> int:
    """Return a dimension argument, counted from 0; the default is 0."""
    dim = node.args[index] if len(node.args) > index else node.kwargs.get("dim", 0)
    return int(dim) % max(rank, 1)  # type: ignore[call-overload]


def require_number(value: Any) -> int | float | bool:
    """Return a literal argument that is a number.

    Raises:
        Unsupported: it is not a number.
    """
    if not isinstance(value, (int, float, bool)):
        raise Unsupported(f"argument {value!r}, which is not a number")
    return value


def fill_value(node: fx.Node) -> int | float | bool:
    """Return the fill value of a constant node."""
    kind = op_name(node.target).removesuffix("_like")
    return require_number({"zeros": 0, "ones": 1}.get(kind, node.args[0 if kind == "scalar_tensor" else -1]))


def shape_of(node: fx.Node) -> tuple[int, ...]:
    """Return the shape of a node's tensor."""
    return tuple(int(size) for size in node.meta["val"].shape)


def result_shape(node: fx.Node) -> tuple[int, ...]:
    """Return the shape of a node's only or first result."""
    value = node.meta["val"]
    return tuple(int(size) for size in (value[0] if isinstance(value, (tuple, list)) else value).shape)


def dtype_of(node: fx.Node) -> str:
    """Return the name of a node's dtype: `float32`."""
    return str(node.meta["val"].dtype).removeprefix("torch.")


def compute_dtype(node: fx.Node) -> str:
    """Return the dtype in which a region computes a node: its own, or float32 for half precision.

    Raises:
        Unsupported: no backend supports the dtype.
    """
    dtype = dtype_of(node)
    if dtype in ("float16", "bfloat16"):
        return "float32"
    if dtype not in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"):
        raise Unsupported(f"{dtype} values")
    return dtype


def variance_dtype(node: fx.Node) -> str:
    """Return the dtype in which torch accumulates a variance.

    On a CPU it accumulates FP32 in FP64, so that squares neither overflow nor underflow, except in layer_norm and
    group_norm.
    """
    value = node_arg(node, 0).meta["val"]
    norms = ("native_layer_norm", "native_group_norm")
    in_fp64 = runs_on_cpu(value) and op_name(node.meta.get("original_aten")) not in norms
    return "float64" if in_fp64 or value.dtype == torch.float64 else "float32"


def mean_is_subtracted(mean: fx.Node) -> bool:
    """Whether a mean, or an equal mean of the same source, is subtracted from something."""
    source = node_arg(mean, 0)
    dims = reduced_dims(mean, len(shape_of(source)))
    same = [node for node in source.users if op_name(node.target) == "mean" and node_arg(node, 0) is source]
    return any(_is_subtracted(node) for node in same if reduced_dims(node, len(shape_of(source))) == dims)


def _is_subtracted(node: fx.Node) -> bool:
    """Whether a node is subtracted, possibly through views, conversions and slices."""
    for user in node.users:
        name = op_name(user.target)
        if name in ("sub", "rsub") and node in user.args[:2]:
            return True
        if name in (*VIEWS, *CONVERSIONS, *SLICE_OPS) and _is_subtracted(user):
            return True
    return False


def common_dtype(one: Any, other: Any = True) -> str:
    """Return the dtype in which torch compares nodes and numbers.

    A literal or a 0-dimensional tensor promotes a dtype only from integer to floating point.
    """
    one, other = (arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in (one, other))
    dtype = str(torch.result_type(one, other)).removeprefix("torch.")
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def wrap_integer(value: Operand, dtype: str) -> Operand:
    """Wrap an integer literal around to an integer dtype, as torch does for an operand of that dtype."""
    if isinstance(value, (str, bool, float)) or dtype == "bool" or dtype.startswith("float"):
        return value
    least, size = (0, 256) if dtype == "uint8" else (-(1 << 8 * DTYPE_BYTES[dtype] - 1), 1 << 8 * DTYPE_BYTES[dtype])
    return (value - least) % size + least


def reduced_dims(node: fx.Node, rank: int) -> tuple[int, ...]:
    """Return the dimensions that a reduction reduces, sorted and counted from 0."""
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or dims == []:
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)  # type: ignore[arg-type]
    return tuple(sorted(int(d) % max(rank, 1) for d in listed))  # type: ignore[call-overload]


def variance_correction(node: fx.Node) -> float:
    """Return the correction of a variance, which is subtracted from the number of elements."""
    if "correction" in node.kwargs:
        correction = node.kwargs["correction"]
        return 1.0 if correction is None else float(correction)  # type: ignore[arg-type]
    unbiased = next((arg for arg in node.args[1:] if isinstance(arg, bool)), True)
    return 1.0 if unbiased else 0.0


def permuted_dims(node: fx.Node, rank: int) -> list[int]:
    """Return the source dimension of each dimension of a permutation's result."""
    name = op_name(node.target)
    if name == "permute":
        return [int(d) % rank for d in node.args[1]]  # type: ignore[union-attr]
    one, other = (0, 1) if name == "t" else (int(d) % rank for d in node.args[1:3])  # type: ignore[call-overload]
    dims = list(range(rank))
    if rank > 1:
        dims[one], dims[other] = dims[other], dims[one]
    return dims


def arange_start_step(node: fx.Node) -> tuple[int, int]:
    """Return (start, step) of an arange or iota.

    Raises:
        Unsupported: they are not integers.
    """
    if op_name(node.target) == "iota":
        return int(node.kwargs.get("start", 0)), int(node.kwargs.get("step", 1))  # type: ignore[arg-type]
    numbers = [arg for arg in node.args if isinstance(arg, (int, float))]
    start, step = (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)
    if int(start) != start or int(step) != step:
        raise Unsupported("arange with non-integer bounds")
    return int(start), int(step)
