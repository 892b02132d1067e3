"""How each step of a region is written in Triton, and the small functions that a step may call.

Values are torch's: NaN wins in a maximum, a remainder has the sign of its divisor, halves round to even.
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
"""In bits."""
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
"""Steps that take tens of them."""
MAX_FAST_POW_EXPONENT = 4
"""Known powers up to here are taken without the library's `pow`, as near: tests hold it to 2 * 2**-24."""
_ROUNDING_OPS = ("floor", "ceil", "trunc", "round")

HELPERS = {
    "larger": '''@triton.jit
def larger(a, b):
    """The larger of two values, NaN where either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "smaller": '''@triton.jit
def smaller(a, b):
    """The smaller of two values, NaN where either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "near": '''@triton.jit
def near(x, size: tl.constexpr):
    """A row's elements, by groups of so many that lie beside each other."""
    return tl.reshape(x, (x.shape[0] // size, size))
''',
    "spread": '''@triton.jit
def spread(x, size: tl.constexpr):
    """What each group of elements has in common, for each of them."""
    return tl.reshape(tl.broadcast_to(x[:, None], (x.shape[0], size)), (x.shape[0] * size,))
''',
    "product": '''@triton.jit
def product(a, b):
    """The product of two values, to reduce with."""
    return a * b
''',
    "first_larger": '''@triton.jit
def first_larger(a, a_at, b, b_at):
    """The larger of two values with its position: NaN before all, the first of equals."""
    wins = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    wins = wins | (equal & (a_at < b_at))
    return tl.where(wins, a, b), tl.where(wins, a_at, b_at)
''',
    "first_smaller": '''@triton.jit
def first_smaller(a, a_at, b, b_at):
    """The smaller of two values with its position: NaN before all, the first of equals."""
    wins = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    wins = wins | (equal & (a_at < b_at))
    return tl.where(wins, a, b), tl.where(wins, a_at, b_at)
''',
    "tell": '''@triton.jit
def tell(place, value):
    """Writes down what a part of a row found and the sign that it is there, as one word."""
    tl.store(place, (value.to(tl.int32, bitcast=True).to(tl.int64) << 32) | 1)
''',
    "hear": '''@triton.jit
def hear(place, there):
    """What all parts of a row found, in 32 bits each, as soon as they have written it down: none
    waits for what cannot begin, as programs begin in their order and those of a row are neighbours.
    Several threads may hold one word, so all is read again once all is known to be there."""
    words = tl.load(place, mask=there, other=1, volatile=True)
    while tl.min(words & 1) == 0:
        words = tl.load(place, mask=there, other=1, volatile=True)
    return (tl.load(place, mask=there, other=1, volatile=True) >> 32).to(tl.int32)
''',
    "powered": '''@triton.jit
def powered(x, exponent: tl.constexpr, rest: tl.constexpr, reach: tl.constexpr):
    """x to the power of exponent + rest, a known number, where all of x lies within 2 to the power of
    +-reach: by its logarithm to base 2 in two floats, less than 2 * 2**-24 off. What lies elsewhere, or
    is negative, or no number, is left to pow. A product whose rounding counts has zero added to it, so
    that the compiler fuses it with nothing else."""
    bits = x.to(tl.int32, bitcast=True)
    plain = (bits >= (127 - reach) << 23) & (bits < (127 + reach) << 23)
    if len(x.shape) == 0:
        ordinary = plain
    else:
        ordinary = tl.min(plain.to(tl.int32)) == 1
    if ordinary:
        binary = (bits - 0x3F3504F3) >> 23
        whole = binary.to(tl.float32)
        off = (bits - (binary << 23)).to(tl.float32, bitcast=True) - 1.0
        curve = tl.full(x.shape, 0.125998452, tl.float32)
        curve = tl.fma(curve, off, tl.full(x.shape, -0.208351746, tl.float32))
        curve = tl.fma(curve, off, tl.full(x.shape, 0.216105640, tl.float32))
        curve = tl.fma(curve, off, tl.full(x.shape, -0.238799796, tl.float32))
        curve = tl.fma(curve, off, tl.full(x.shape, 0.287869781, tl.float32))
        curve = tl.fma(curve, off, tl.full(x.shape, -0.360709697, tl.float32))
        curve = tl.fma(curve, off, tl.full(x.shape, 0.480911225, tl.float32))
        curve = tl.fma(curve, off, tl.full(x.shape, -0.721347272, tl.float32))
        zero = tl.full(x.shape, 0.0, tl.float32)
        curve = tl.fma(curve, off * off, zero)
        base = tl.full(x.shape, 1.44269502, tl.float32)
        line = tl.fma(off, base, zero)
        slight = tl.fma(off, base, -line) + off * 1.92596299e-08
        log = line + curve
        slight += (line - log) + curve
        high = whole + log
        slight += (whole - high) + log
        times = tl.full(x.shape, exponent, tl.float32)
        power = tl.fma(high, times, zero)
        slight = tl.fma(high, times, -power) + high * rest + slight * exponent
        steps = libdevice.rint(power)
        part = (power - steps) + slight
        result = tl.full(x.shape, 0.000153533809, tl.float32)
        result = tl.fma(result, part, tl.full(x.shape, 0.00133989018, tl.float32))
        result = tl.fma(result, part, tl.full(x.shape, 0.00961843785, tl.float32))
        result = tl.fma(result, part, tl.full(x.shape, 0.0555033237, tl.float32))
        result = tl.fma(result, part, tl.full(x.shape, 0.240226477, tl.float32))
        result = tl.fma(result, part, tl.full(x.shape, 0.693147182, tl.float32))
        result = tl.fma(result, part, tl.full(x.shape, 1.0, tl.float32))
        scaled = result.to(tl.int32, bitcast=True) + (steps.to(tl.int32) << 23)
        result = scaled.to(tl.float32, bitcast=True)
    else:
        result = libdevice.pow(x, tl.full(x.shape, exponent, tl.float32))
    return result
''',
    "floored": '''@triton.jit
def floored(a, b):
    """The quotient of two floats rounded down, also where a / b is rounded up."""
    rest = libdevice.fmod(a, b)
    quotient = (a - rest) / b
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1, whole)
    return tl.where(b == 0, a / b, whole)
''',
    "floored_whole": '''@triton.jit
def floored_whole(a, b):
    """The quotient of two whole numbers rounded down, where // rounds to zero."""
    quotient = a // b
    return tl.where((a - quotient * b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)
''',
    "power_of_whole": '''@triton.jit
def power_of_whole(a, b, bits: tl.constexpr, signed: tl.constexpr):
    """The power of a whole number, which wraps around as products do; that of a negative exponent is
    a fraction, rounded to zero."""
    power, square, rest = a * 0 + b * 0 + 1, a, b
    for _ in tl.static_range(bits):
        power = tl.where((rest & 1) == 1, power * square, power)
        square = square * square
        rest = rest >> 1
    if signed:
        of_minus_one = tl.where((b & 1) == 1, a, a * a)
        fraction = tl.where((a == 1) | (a == -1), of_minus_one, a * 0)
        power = tl.where(b < 0, fraction, power)
    return power
''',
    "remainder_of": '''@triton.jit
def remainder_of(a, b):
    """What is left of a float after division, with the sign of the divisor."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)
''',
    "remainder_of_whole": '''@triton.jit
def remainder_of_whole(a, b):
    """What is left of a whole number after division, with the sign of the divisor."""
    rest = a % b
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)
''',
}
"""Functions that generated kernels call, by name; a file holds those that it uses, once."""


def select_helpers(text: str) -> tuple[str, ...]:
    """The helpers that a kernel's text calls."""
    return tuple(source for name, source in HELPERS.items() if re.search(rf"\b{name}\b", text))


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def literal(number: int | float | bool, dtype: str) -> str:
    """A number in a dtype, where a tensor of that dtype stands beside it."""
    if dtype == "bool":
        return str(bool(number))
    if not is_float(dtype):
        return str(int(number))
    number = float(number)
    return repr(number) if abs(number) < float("inf") else f'float("{number}")'


def full(number: int | float | bool, dtype: str) -> str:
    """A number as a tensor of its own, where nothing beside it says the dtype."""
    return f"tl.full((), {literal(number, dtype)}, {TRITON_TYPES[dtype]})"


def lowest(dtype: str) -> str:
    """What no value of a dtype is below."""
    if is_float(dtype):
        return literal(float("-inf"), dtype)
    return str(-_LIMITS[dtype]) if dtype in _LIMITS else "0"


def highest(dtype: str) -> str:
    """What no value of a dtype is above."""
    if is_float(dtype):
        return literal(float("inf"), dtype)
    return str(_LIMITS[dtype] - 1) if dtype in _LIMITS else {"uint8": "255", "bool": "1"}[dtype]


def step_expr(op: str, args: tuple[Operand, ...], dtypes: tuple[str | None, ...], dtype: str) -> str:
    """A step whose arguments are names or numbers.

    Args:
        dtypes: for each argument its dtype, None for a number.
        dtype: of the result.

    Raises:
        Misfit: a step that has no form here.
    """
    common = next((kind for kind in dtypes if kind), "float32") if op in COMPARISONS else dtype
    if op == "cast":
        return _cast_expr(args[0], dtypes[0], dtype)
    if op == "where":
        kinds = ("bool", dtype, dtype)
        return f"tl.where({', '.join(_operands(args, kinds, beside=dtypes[1:] != (None, None)))})"
    if op in _INFIX:
        one, other = _operands(args, (common, common), beside=any(dtypes))
        return f"{one} {_INFIX[op]} {other}"
    if (
        op == "pow"
        and dtype == "float32"
        and not isinstance(args[1], str)
        and 0 < abs(args[1]) <= MAX_FAST_POW_EXPONENT
    ):
        return _fast_pow_expr(args[0], float(args[1]))
    return _call_expr(op, _operands(args, (common,) * len(args), beside=False), common)


def _fast_pow_expr(base: Operand, exponent: float) -> str:
    """A known power, by float32 and what that leaves of it; the result stays within the normal floats."""
    (single,) = struct.unpack("f", struct.pack("f", exponent))
    return f"powered({base}, {single!r}, {exponent - single!r}, {min(125, int(125 / abs(exponent)))})"


def _operands(args: tuple[Operand, ...], dtypes: tuple[str, ...], beside: bool) -> list[str]:
    """Names as they are; numbers as literals, or as tensors where no value beside them gives the dtype."""
    return [
        arg if isinstance(arg, str) else (literal if beside else full)(arg, dtype)
        for arg, dtype in zip(args, dtypes, strict=True)
    ]


def _cast_expr(arg: Operand, have: str | None, dtype: str) -> str:
    if not isinstance(arg, str):
        return full(arg, dtype)
    if dtype == "bool":
        return f"{arg} != {literal(0, have or dtype)}"
    return f"{arg}.to({TRITON_TYPES[dtype]})"


def _call_expr(op: str, args: list[str], dtype: str) -> str:
    one, floats = args[0], is_float(dtype)
    if not floats and op in _ROUNDING_OPS:
        return one
    if op in ("max", "min", "fmax", "fmin", "relu", "floor_div", "trunc_div", "remainder", "fmod"):
        return _binary_expr(op, [*args, full(0, dtype)] if op == "relu" else args, dtype)
    if op in ("isnan", "isinf") and not floats:
        return f"{one} != {one}"
    simple = {
        "neg": f"-{one}",
        "abs": f"tl.abs({one})",
        "square": f"{one} * {one}",
        "reciprocal": f"1.0 / {one}",
        "sqrt": f"tl.sqrt_rn({one})" if dtype == "float32" else f"tl.sqrt({one})",
        "round": f"libdevice.rint({one})",
        "not": f"{one} == 0",
        "bit_not": {"bool": f"{one} == 0", "uint8": f"{one} ^ 255"}.get(dtype, f"~{one}"),
        "isnan": f"{one} != {one}",
        "isinf": f'tl.abs({one}) == float("inf")',
        "sign": f"({one} > 0).to({TRITON_TYPES[dtype]}) - ({one} < 0).to({TRITON_TYPES[dtype]})",
    }
    if op in simple:
        return simple[op]
    if op == "pow" and not floats:
        bits, signed = _INTEGER_BITS[dtype], dtype != "uint8"
        return f"power_of_whole({', '.join(args)}, {bits - signed}, {signed})"
    if op in _TL_FUNCTIONS and floats:
        return f"tl.{op}({one})"
    if op in _LIBDEVICE_FUNCTIONS and floats:
        return f"libdevice.{op}({', '.join(args)})"
    raise Unsupported(f"{op} of {dtype} has no form in Triton yet")


def _binary_expr(op: str, args: list[str], dtype: str) -> str:
    one, other = args
    floats = is_float(dtype)
    if op in ("fmax", "fmin"):
        sign = ">" if op == "fmax" else "<"
        return f"tl.where(({one} {sign} {other}) | ({other} != {other}), {one}, {other})"
    if op in ("max", "min", "relu"):
        if dtype == "bool":
            return f"{one} {'&' if op == 'min' else '|'} {other}"
        return f"{'smaller' if op == 'min' else 'larger'}({one}, {other})"
    if op == "trunc_div":
        return f"libdevice.trunc({one} / {other})" if floats else f"{one} // {other}"
    if op == "fmod":
        return f"libdevice.fmod({one}, {other})" if floats else f"{one} % {other}"
    name = "floored" if op == "floor_div" else "remainder_of"
    return f"{name if floats else name + '_whole'}({one}, {other})"
