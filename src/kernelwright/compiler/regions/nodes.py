"""What the nodes of a captured graph say: shapes, dtypes, dimensions, numbers, and where their memory is.

torch.fx types every argument as the union of all that a graph can hold. What stands at which place is said by the
operator's schema: that is what the `type: ignore` comments here, in `lower`, and in `seams` and `splitting` rely on.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.operators import (
    CONSTANTS,
    CONVERSIONS,
    SCANS,
    SLICE_OPS,
    SPLIT_OPS,
    SUPPORTED_OPS,
    VIEWS,
    op_name,
)
from kernelwright.compiler.regions.region import Operand
from kernelwright.core.units import DTYPE_BYTES

READ_AS_FP32 = "read_wide"
"""In a node's meta: it casts an FP32 tensor to half precision, and a region reads that tensor instead."""


def is_rematerializable(node: fx.Node) -> bool:
    """Whether a node costs nothing where it is needed: a constant, a range, or memory that is read in place."""
    return is_constant_or_range(node) or is_strided_view(node)


def is_constant_or_range(node: Any) -> bool:
    """Whether a node is a constant or a range, in whatever shape."""
    if not isinstance(node, fx.Node):
        return False
    name = op_name(node.target)
    return name in (*CONSTANTS, "arange", "iota") or (name in VIEWS and is_constant_or_range(node.args[0]))


def is_strided_view(node: fx.Node) -> bool:
    """Whether a node is another tensor's memory: a cut out of it, it in another order, a view of an external, or what
    is read in FP32."""
    name = op_name(node.target)
    if name == "flip":
        return match_flipped_scan(node) is None
    if name in SLICE_OPS or name in SPLIT_OPS or READ_AS_FP32 in node.meta:
        return True
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node) or is_constant_or_range(node):
        return False
    if name == "getitem":
        return op_name(source.target) in SPLIT_OPS
    return name in VIEWS and (is_strided_view(source) or _is_external(source))


def resolve_view(node: fx.Node) -> tuple[fx.Node, tuple[int, ...], int]:
    """(the tensor, strides, offset): where the elements of a node that is read in place are, in elements."""
    if not is_strided_view(node):
        return node, tuple(int(stride) for stride in node.meta["val"].stride()), 0
    source = node_arg(node, 0)
    name = op_name(node.target)
    if name == "flip":
        return _flipped_memory(node, source)
    if name == "getitem":
        source = node_arg(source, 0)
    root, base, offset = resolve_view(source)
    if any(stride < 0 for stride in base):
        raise Unsupported(f"a part of {source.name}, which runs backwards")
    moved = int(node.meta["val"].storage_offset()) - int(source.meta["val"].storage_offset())
    return root, tuple(int(stride) for stride in node.meta["val"].stride()), offset + moved


def _flipped_memory(node: fx.Node, source: fx.Node) -> tuple[fx.Node, tuple[int, ...], int]:
    root, base, offset = resolve_view(source)
    if not base:
        return root, base, offset
    over = {int(d) % len(base) for d in node.args[1]}  # type: ignore[union-attr]
    sizes = shape_of(source)
    offset += sum((sizes[d] - 1) * base[d] for d in over)
    return root, tuple(-stride if d in over else stride for d, stride in enumerate(base)), offset


def match_flipped_scan(node: Any) -> tuple[fx.Node, int] | None:
    """(the scan, dimension) if a node turns the scan of something turned around back."""
    if not isinstance(node, fx.Node) or op_name(node.target) != "flip":
        return None
    scan = node.args[0]
    if isinstance(scan, fx.Node) and op_name(scan.target) in SCANS and (turned := match_reversed_scan(scan)):
        return (scan, turned[1]) if _flip_dims(node) == [turned[1]] else None
    return None


def match_reversed_scan(scan: fx.Node) -> tuple[fx.Node, int] | None:
    """(what is scanned, dimension) if a scan runs over something turned around in its own dimension."""
    source, rank = node_arg(scan, 0), len(shape_of(scan))
    dim = dim_arg(scan, 1, rank)
    if op_name(source.target) == "flip" and _flip_dims(source) == [dim]:
        return node_arg(source, 0), dim
    return None


def _flip_dims(node: fx.Node) -> list[int]:
    return [int(d) % len(shape_of(node)) for d in node.args[1]]  # type: ignore[union-attr]


def _is_external(node: fx.Node) -> bool:
    """Whether no region can ever compute a node."""
    return node.op != "call_function" or op_name(node.target) not in SUPPORTED_OPS


def node_arg(node: fx.Node, at: int) -> fx.Node:
    arg = node.args[at]
    if not isinstance(arg, fx.Node):
        raise Unsupported(f"{node.target} of {arg!r}")
    return arg


def dim_arg(node: fx.Node, at: int, rank: int) -> int:
    """The dimension that an argument names, counted from 0; the first where it is left out."""
    given = node.args[at] if len(node.args) > at else node.kwargs.get("dim", 0)
    return int(given) % max(rank, 1)  # type: ignore[call-overload]


def require_number(value: Any) -> int | float | bool:
    if not isinstance(value, (int, float, bool)):
        raise Unsupported(f"an argument {value!r}")
    return value


def fill_value(node: fx.Node) -> int | float | bool:
    """The number of which a node is full."""
    kind = op_name(node.target).removesuffix("_like")
    return require_number({"zeros": 0, "ones": 1}.get(kind, node.args[0 if kind == "scalar_tensor" else -1]))


def shape_of(node: fx.Node) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["val"].shape)


def result_shape(node: fx.Node) -> tuple[int, ...]:
    """The shape of a node's only or first result."""
    value = node.meta["val"]
    return tuple(int(size) for size in (value[0] if isinstance(value, (tuple, list)) else value).shape)


def dtype_of(node: fx.Node) -> str:
    return str(node.meta["val"].dtype).removeprefix("torch.")


def compute_dtype(node: fx.Node) -> str:
    """The dtype in which a node's value is computed.

    Raises:
        Misfit: one that no generator has.
    """
    dtype = dtype_of(node)
    if dtype in ("float16", "bfloat16"):
        return "float32"
    if dtype not in ("float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"):
        raise Unsupported(f"{dtype} values")
    return dtype


def variance_dtype(node: fx.Node) -> str:
    """The dtype in which torch accumulates a variance: on a CPU FP32 in FP64, so that squares neither overflow nor
    vanish, but for layer_norm and group_norm."""
    value = node_arg(node, 0).meta["val"]
    norms = ("native_layer_norm", "native_group_norm")
    wide = value.device.type == "cpu" and op_name(node.meta.get("original_aten")) not in norms
    return "float64" if wide or value.dtype == torch.float64 else "float32"


def mean_is_subtracted(mean: fx.Node) -> bool:
    """Whether a mean, or another one of the same, is subtracted from something."""
    source = node_arg(mean, 0)
    dims = reduced_dims(mean, len(shape_of(source)))
    same = [node for node in source.users if op_name(node.target) == "mean" and node_arg(node, 0) is source]
    return any(_is_subtracted(node) for node in same if reduced_dims(node, len(shape_of(source))) == dims)


def _is_subtracted(node: fx.Node) -> bool:
    """Seen through views, conversions and cuts."""
    for user in node.users:
        name = op_name(user.target)
        if name in ("sub", "rsub") and node in user.args[:2]:
            return True
        if name in (*VIEWS, *CONVERSIONS, *SLICE_OPS) and _is_subtracted(user):
            return True
    return False


def common_dtype(one: Any, other: Any = True) -> str:
    """The dtype in which torch compares nodes and numbers: a number, in a tensor of no dimensions or plain, widens a
    dtype only from whole to fraction."""
    one, other = (given.meta["val"] if isinstance(given, fx.Node) else given for given in (one, other))
    dtype = str(torch.result_type(one, other)).removeprefix("torch.")
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def wrap_integer(value: Operand, dtype: str) -> Operand:
    """A plain whole number as torch takes it beside whole numbers of a dtype: one that is too large wraps around."""
    if isinstance(value, (str, bool, float)) or dtype == "bool" or dtype.startswith("float"):
        return value
    least, size = (0, 256) if dtype == "uint8" else (-(1 << 8 * DTYPE_BYTES[dtype] - 1), 1 << 8 * DTYPE_BYTES[dtype])
    return (value - least) % size + least


def reduced_dims(node: fx.Node, rank: int) -> tuple[int, ...]:
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if dims is None or dims == []:
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)  # type: ignore[arg-type]
    return tuple(sorted(int(d) % max(rank, 1) for d in listed))  # type: ignore[call-overload]


def variance_correction(node: fx.Node) -> float:
    """What a variance takes off the number of values."""
    if "correction" in node.kwargs:
        given = node.kwargs["correction"]
        return 1.0 if given is None else float(given)  # type: ignore[arg-type]
    unbiased = next((arg for arg in node.args[1:] if isinstance(arg, bool)), True)
    return 1.0 if unbiased else 0.0


def permuted_dims(node: fx.Node, rank: int) -> list[int]:
    """The dimensions of a permutation's source, in the order of its result."""
    name = op_name(node.target)
    if name == "permute":
        return [int(d) % rank for d in node.args[1]]  # type: ignore[union-attr]
    one, other = (0, 1) if name == "t" else (int(d) % rank for d in node.args[1:3])  # type: ignore[call-overload]
    found = list(range(rank))
    if rank > 1:
        found[one], found[other] = found[other], found[one]
    return found


def arange_start_step(node: fx.Node) -> tuple[int, int]:
    """(start, step) of an arange or iota."""
    if op_name(node.target) == "iota":
        return int(node.kwargs.get("start", 0)), int(node.kwargs.get("step", 1))  # type: ignore[arg-type]
    numbers = [arg for arg in node.args if isinstance(arg, (int, float))]
    start, step = (numbers[0] if len(numbers) > 1 else 0), (numbers[2] if len(numbers) > 2 else 1)
    if int(start) != start or int(step) != step:
        raise Unsupported("a range of fractions")
    return int(start), int(step)
