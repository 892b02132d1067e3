"""Triton code for each step of a region, and the helper functions that steps call.

The semantics are torch's: a maximum propagates NaN, a remainder has the sign of its divisor, ties round to even.
"""

from __future__ import annotations

import re
import struct

from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.operators import COMPARISONS
from kernelwright.compiler.regions.region import Operand

TRITON_TYPES = {
    "float32": "tl.float32", "float64": "tl.float64", "float16": "tl.float16", "bfloat16": "tl.bfloat16",
    "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8",
    "bool": "tl.int1",
}  # fmt: skip
HALF_DTYPES = ("float16", "bfloat16")
_INTEGER_BITS = {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8}
_LIMITS = {dtype: 2 ** (bits - 1) for dtype, bits in _INTEGER_BITS.items() if dtype != "uint8"}
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
    "ne": "!=", "and": "&", "or": "|", "xor": "^", "bit_and": "&", "bit_or": "|", "bit_xor": "^",
}  # fmt: skip
_TL_FUNCTIONS = (
    "exp", "exp2", "log", "log2", "sin", "cos", "erf", "rsqrt", "sigmoid", "floor", "ceil",
)  # fmt: skip
_LIBDEVICE_FUNCTIONS = (
    "expm1", "log10", "log1p", "tan", "tanh", "sinh", "cosh", "asin", "acos", "atan", "erfc", "pow", "fmod", "trunc",
)  # fmt: skip
EXPENSIVE_OPS = frozenset((*_LIBDEVICE_FUNCTIONS, "sin", "cos", "erf")) - {"trunc"}
"""Steps that take tens of instructions."""
MAX_FAST_POW_EXPONENT = 4
"""Constant exponents up to this magnitude use `fast_pow` instead of libdevice.pow; its relative error is below
2 * 2**-24, which a test checks."""
_ROUNDING_OPS = ("floor", "ceil", "trunc", "round")

HELPERS = {
    "maximum_nan": '''@triton.jit
def maximum_nan(a, b):
    """Maximum of two values; NaN if either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "minimum_nan": '''@triton.jit
def minimum_nan(a, b):
    """Minimum of two values; NaN if either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "split_groups": '''@triton.jit
def split_groups(x, size: tl.constexpr):
    """Reshapes a row into groups of `size` adjacent elements."""
    return tl.reshape(x, (x.shape[0] // size, size))
''',
    "broadcast_groups": '''@triton.jit
def broadcast_groups(x, size: tl.constexpr):
    """Repeats the value of each group for its `size` elements."""
    return tl.reshape(tl.broadcast_to(x[:, None], (x.shape[0], size)), (x.shape[0] * size,))
''',
    "round_to_tf32": '''@triton.jit
def round_to_tf32(x):
    """FP32 rounded to the nearest TF32; the tensor cores would drop the other bits."""
    bits = x.to(tl.int32, bitcast=True)
    rounded = ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return tl.where((bits & 0x7FFFFFFF) < 0x7F800000, rounded, x)
''',
    "multiply_combine": '''@triton.jit
def multiply_combine(a, b):
    """Combine function of a product reduction."""
    return a * b
''',
    "argmax_combine": '''@triton.jit
def argmax_combine(a, a_index, b, b_index):
    """Combine function of argmax: NaN beats all numbers, ties take the first index."""
    take_a = (a > b) | ((a != a) & (b == b))
    is_tie = (a == b) | ((a != a) & (b != b))
    take_a = take_a | (is_tie & (a_index < b_index))
    return tl.where(take_a, a, b), tl.where(take_a, a_index, b_index)
''',
    "argmin_combine": '''@triton.jit
def argmin_combine(a, a_index, b, b_index):
    """Combine function of argmin: NaN beats all numbers, ties take the first index."""
    take_a = (a < b) | ((a != a) & (b == b))
    is_tie = (a == b) | ((a != a) & (b != b))
    take_a = take_a | (is_tie & (a_index < b_index))
    return tl.where(take_a, a, b), tl.where(take_a, a_index, b_index)
''',
    "store_partial": '''@triton.jit
def store_partial(ptr, value):
    """Stores the partial result of a split and its ready flag as one 64-bit word."""
    tl.store(ptr, (value.to(tl.int32, bitcast=True).to(tl.int64) << 32) | 1)
''',
    "wait_partials": '''@triton.jit
def wait_partials(ptr, mask):
    """Waits for the 32-bit partial results of all splits of a row and loads them. No deadlock:
    programs start in order, those of a row are adjacent, and all splits of a row are resident at
    once. Several threads may hold one word, so all are reloaded once all flags are set."""
    words = tl.load(ptr, mask=mask, other=1, volatile=True)
    while tl.min(words & 1) == 0:
        words = tl.load(ptr, mask=mask, other=1, volatile=True)
    return (tl.load(ptr, mask=mask, other=1, volatile=True) >> 32).to(tl.int32)
''',
    "fast_pow": '''@triton.jit
def fast_pow(x, exponent: tl.constexpr, exponent_lo: tl.constexpr, max_exponent: tl.constexpr):
    """x to the power of the constant exponent + exponent_lo, where all of x is from 2**-max_exponent
    to 2**max_exponent; otherwise, also for negative x and NaN, libdevice.pow. log2(x) is the sum of
    two floats; the relative error is below 2 * 2**-24. A product whose rounding error is needed is
    an FMA with zero, so that the compiler does not contract it with another operation."""
    bits = x.to(tl.int32, bitcast=True)
    in_range = (bits >= (127 - max_exponent) << 23) & (bits < (127 + max_exponent) << 23)
    if len(x.shape) == 0:
        all_in_range = in_range
    else:
        all_in_range = tl.min(in_range.to(tl.int32)) == 1
    if all_in_range:
        exponent_int = (bits - 0x3F3504F3) >> 23
        exponent_part = exponent_int.to(tl.float32)
        frac = (bits - (exponent_int << 23)).to(tl.float32, bitcast=True) - 1.0
        poly = tl.full(x.shape, 0.125998452, tl.float32)
        poly = tl.fma(poly, frac, tl.full(x.shape, -0.208351746, tl.float32))
        poly = tl.fma(poly, frac, tl.full(x.shape, 0.216105640, tl.float32))
        poly = tl.fma(poly, frac, tl.full(x.shape, -0.238799796, tl.float32))
        poly = tl.fma(poly, frac, tl.full(x.shape, 0.287869781, tl.float32))
        poly = tl.fma(poly, frac, tl.full(x.shape, -0.360709697, tl.float32))
        poly = tl.fma(poly, frac, tl.full(x.shape, 0.480911225, tl.float32))
        poly = tl.fma(poly, frac, tl.full(x.shape, -0.721347272, tl.float32))
        zero = tl.full(x.shape, 0.0, tl.float32)
        poly = tl.fma(poly, frac * frac, zero)
        log2_e = tl.full(x.shape, 1.44269502, tl.float32)
        linear_hi = tl.fma(frac, log2_e, zero)
        lo = tl.fma(frac, log2_e, -linear_hi) + frac * 1.92596299e-08
        log2_frac = linear_hi + poly
        lo += (linear_hi - log2_frac) + poly
        log2_hi = exponent_part + log2_frac
        lo += (exponent_part - log2_hi) + log2_frac
        y = tl.full(x.shape, exponent, tl.float32)
        product_hi = tl.fma(log2_hi, y, zero)
        lo = tl.fma(log2_hi, y, -product_hi) + log2_hi * exponent_lo + lo * exponent
        rounded = libdevice.rint(product_hi)
        r = (product_hi - rounded) + lo
        result = tl.full(x.shape, 0.000153533809, tl.float32)
        result = tl.fma(result, r, tl.full(x.shape, 0.00133989018, tl.float32))
        result = tl.fma(result, r, tl.full(x.shape, 0.00961843785, tl.float32))
        result = tl.fma(result, r, tl.full(x.shape, 0.0555033237, tl.float32))
        result = tl.fma(result, r, tl.full(x.shape, 0.240226477, tl.float32))
        result = tl.fma(result, r, tl.full(x.shape, 0.693147182, tl.float32))
        result = tl.fma(result, r, tl.full(x.shape, 1.0, tl.float32))
        result_bits = result.to(tl.int32, bitcast=True) + (rounded.to(tl.int32) << 23)
        result = result_bits.to(tl.float32, bitcast=True)
    else:
        result = libdevice.pow(x, tl.full(x.shape, exponent, tl.float32))
    return result
''',
    "floor_div_float": '''@triton.jit
def floor_div_float(a, b):
    """Floor division of floats, correct where a / b rounds up to an integer."""
    rem = libdevice.fmod(a, b)
    quotient = (a - rem) / b
    quotient = tl.where((rem != 0) & ((b < 0) != (rem < 0)), quotient - 1, quotient)
    floor_q = tl.floor(quotient)
    floor_q = tl.where(quotient - floor_q > 0.5, floor_q + 1, floor_q)
    return tl.where(b == 0, a / b, floor_q)
''',
    "floor_div_int": '''@triton.jit
def floor_div_int(a, b):
    """Floor division of integers; Triton's // truncates."""
    quotient = a // b
    return tl.where((a - quotient * b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)
''',
    "pow_int": '''@triton.jit
def pow_int(a, b, bits: tl.constexpr, signed: tl.constexpr):
    """Integer power with wrap-around; a negative exponent truncates to 0 or +-1."""
    power, square, remaining = a * 0 + b * 0 + 1, a, b
    for _ in tl.static_range(bits):
        power = tl.where((remaining & 1) == 1, power * square, power)
        square = square * square
        remaining = remaining >> 1
    if signed:
        minus_one_pow = tl.where((b & 1) == 1, a, a * a)
        fraction = tl.where((a == 1) | (a == -1), minus_one_pow, a * 0)
        power = tl.where(b < 0, fraction, power)
    return power
''',
    "remainder_float": '''@triton.jit
def remainder_float(a, b):
    """Remainder of floats with the sign of the divisor."""
    rem = libdevice.fmod(a, b)
    return tl.where((rem != 0) & ((b < 0) != (rem < 0)), rem + b, rem)
''',
    "remainder_int": '''@triton.jit
def remainder_int(a, b):
    """Remainder of integers with the sign of the divisor."""
    rem = a % b
    return tl.where((rem != 0) & ((b < 0) != (rem < 0)), rem + b, rem)
''',
}
"""Functions that generated kernels call, by name; each file holds those that it uses, once."""


def select_helpers(source: str) -> tuple[str, ...]:
    """The helpers that a kernel's source calls."""
    return tuple(helper for name, helper in HELPERS.items() if re.search(rf"\b{name}\b", source))


def is_float(dtype: str) -> bool:
    """Whether a dtype is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def literal(number: int | float | bool, dtype: str) -> str:
    """A number as a literal, for expressions in which another operand has the dtype."""
    if dtype == "bool":
        return str(bool(number))
    if not is_float(dtype):
        return str(int(number))
    number = float(number)
    return repr(number) if abs(number) < float("inf") else f'float("{number}")'


def full(number: int | float | bool, dtype: str) -> str:
    """A number as a scalar tensor, for expressions in which no other operand has the dtype."""
    return f"tl.full((), {literal(number, dtype)}, {TRITON_TYPES[dtype]})"


def lowest(dtype: str) -> str:
    """The smallest value of a dtype, -inf for floats: the identity of a maximum."""
    if is_float(dtype):
        return literal(float("-inf"), dtype)
    return str(-_LIMITS[dtype]) if dtype in _LIMITS else "0"


def highest(dtype: str) -> str:
    """The largest value of a dtype, inf for floats: the identity of a minimum."""
    if is_float(dtype):
        return literal(float("inf"), dtype)
    return str(_LIMITS[dtype] - 1) if dtype in _LIMITS else {"uint8": "255", "bool": "1"}[dtype]


def step_expr(op: str, args: tuple[Operand, ...], dtypes: tuple[str | None, ...], dtype: str) -> str:
    """The expression of a step.

    Args:
        args: names of values, or numbers.
        dtypes: the dtype of each argument, None for a number.
        dtype: the dtype of the result.

    Raises:
        Unsupported: the Triton backend does not support the step.
    """
    common = next((one for one in dtypes if one), "float32") if op in COMPARISONS else dtype
    if op == "cast":
        return _cast_expr(args[0], dtypes[0], dtype)
    if op == "where":
        operands = _operands(args, ("bool", dtype, dtype), is_typed=dtypes[1:] != (None, None))
        return f"tl.where({', '.join(operands)})"
    if op in _INFIX:
        x, y = _operands(args, (common, common), is_typed=any(dtypes))
        return f"{x} {_INFIX[op]} {y}"
    if (
        op == "pow"
        and dtype == "float32"
        and not isinstance(args[1], str)
        and 0 < abs(args[1]) <= MAX_FAST_POW_EXPONENT
    ):
        return _fast_pow_expr(args[0], float(args[1]))
    return _call_expr(op, _operands(args, (common,) * len(args), is_typed=False), common)


def _fast_pow_expr(base: Operand, exponent: float) -> str:
    """A constant power: the exponent is split in float32 and a remainder, and the range keeps the result normal."""
    (rounded,) = struct.unpack("f", struct.pack("f", exponent))
    return f"fast_pow({base}, {rounded!r}, {exponent - rounded!r}, {min(125, int(125 / abs(exponent)))})"


def _operands(args: tuple[Operand, ...], dtypes: tuple[str, ...], is_typed: bool) -> list[str]:
    """Names unchanged; numbers as literals if another operand `is_typed`, else as scalar tensors."""
    return [
        arg if isinstance(arg, str) else (literal if is_typed else full)(arg, dtype)
        for arg, dtype in zip(args, dtypes, strict=True)
    ]


def _cast_expr(arg: Operand, source_dtype: str | None, dtype: str) -> str:
    if not isinstance(arg, str):
        return full(arg, dtype)
    if dtype == "bool":
        return f"{arg} != {literal(0, source_dtype or dtype)}"
    return f"{arg}.to({TRITON_TYPES[dtype]})"


def _call_expr(op: str, args: list[str], dtype: str) -> str:
    x, floats = args[0], is_float(dtype)
    if not floats and op in _ROUNDING_OPS:
        return x
    if op in ("max", "min", "fmax", "fmin", "relu", "floor_div", "trunc_div", "remainder", "fmod"):
        return _binary_expr(op, [*args, full(0, dtype)] if op == "relu" else args, dtype)
    if op in ("isnan", "isinf") and not floats:
        return f"{x} != {x}"
    exprs = {
        "neg": f"-{x}",
        "abs": f"tl.abs({x})",
        "square": f"{x} * {x}",
        "reciprocal": f"1.0 / {x}",
        "sqrt": f"tl.sqrt_rn({x})" if dtype == "float32" else f"tl.sqrt({x})",
        "round": f"libdevice.rint({x})",
        "not": f"{x} == 0",
        "bit_not": {"bool": f"{x} == 0", "uint8": f"{x} ^ 255"}.get(dtype, f"~{x}"),
        "isnan": f"{x} != {x}",
        "isinf": f'tl.abs({x}) == float("inf")',
        "sign": f"({x} > 0).to({TRITON_TYPES[dtype]}) - ({x} < 0).to({TRITON_TYPES[dtype]})",
    }
    if op in exprs:
        return exprs[op]
    if op == "pow" and not floats:
        bits, signed = _INTEGER_BITS[dtype], dtype != "uint8"
        return f"pow_int({', '.join(args)}, {bits - signed}, {signed})"
    if op in _TL_FUNCTIONS and floats:
        return f"tl.{op}({x})"
    if op in _LIBDEVICE_FUNCTIONS and floats:
        return f"libdevice.{op}({', '.join(args)})"
    raise Unsupported(f"{op} of {dtype} is not supported by the Triton backend")


def _binary_expr(op: str, args: list[str], dtype: str) -> str:
    x, y = args
    floats = is_float(dtype)
    if op in ("fmax", "fmin"):
        sign = ">" if op == "fmax" else "<"
        return f"tl.where(({x} {sign} {y}) | ({y} != {y}), {x}, {y})"
    if op in ("max", "min", "relu"):
        if dtype == "bool":
            return f"{x} {'&' if op == 'min' else '|'} {y}"
        return f"{'minimum_nan' if op == 'min' else 'maximum_nan'}({x}, {y})"
    if op == "trunc_div":
        return f"libdevice.trunc({x} / {y})" if floats else f"{x} // {y}"
    if op == "fmod":
        return f"libdevice.fmod({x}, {y})" if floats else f"{x} % {y}"
    name = "floor_div" if op == "floor_div" else "remainder"
    return f"{name}_{'float' if floats else 'int'}({x}, {y})"
