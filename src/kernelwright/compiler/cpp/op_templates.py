"""How one value of a region is said in C++: loads, steps, stores, as a vector or as a single number."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.compiler.cpp.passes import Passes
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Load, Operand, Scan, Step, Store

CTYPES = {
    "float32": "float", "float64": "double", "float16": "_Float16", "bfloat16": "BFloat16", "int64": "int64_t",
    "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "Bool",
}  # fmt: skip
COMPUTE_CTYPES = {"float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "bool": "int32_t"}
NARROW_DTYPES = ("int16", "int8", "uint8")
"""Computed in int32: what leaves their range is wrapped around after the step."""
COMPUTE_CTYPES |= dict.fromkeys(NARROW_DTYPES, "int32_t")
_INTEGER_DTYPES = ("int64", "int32", *NARROW_DTYPES)
_CAN_OVERFLOW = (
    "add", "sub", "mul", "neg", "abs", "square", "pow", "floor_div", "trunc_div", "bit_not",
)  # fmt: skip
"""Steps whose results may lie outside the range of their operands' dtype."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_BITWISE = {"and": "&", "or": "|", "xor": "^", "bit_and": "&", "bit_or": "|", "bit_xor": "^"}
_FUNCTIONS = {
    "max": "max_of", "min": "min_of", "abs": "abs_of", "exp": "exp_of", "log": "log_of", "expm1": "expm1_of",
    "log1p": "log1p_of", "tanh": "tanh_of", "sigmoid": "sigmoid_of", "erf": "erf_of", "sqrt": "sqrt_of",
    "log2": "log2_of", "log10": "log10_of", "mean_of": "mean_of",
    "exp_scaled": "exp_scaled_of", "share": "share_of", "floor": "floor_of", "ceil": "ceil_of", "trunc": "trunc_of",
    "round": "round_of", "fmod": "fmod_of", "remainder": "remainder_of", "floor_div": "floor_divided",
    "exp2": "exp2_of", "sin": "sin_of", "cos": "cos_of", "tan": "tan_of", "asin": "asin_of", "acos": "acos_of",
    "atan": "atan_of", "sinh": "sinh_of", "cosh": "cosh_of", "erfc": "erfc_of", "pow": "pow_of",
}  # fmt: skip
_INTEGER_DIVISIONS = {
    "floor_div": "x / y - (x % y != 0 && (x < 0) != (y < 0))",
    "trunc_div": "x / y",
    "fmod": "x % y",
    "remainder": "x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0)",
}
"""For whole numbers."""


@dataclass
class Scope:
    """Where lines go, and how wide the values there are: `V` of a template, or one `float`."""

    lines: list[str]
    depth: int
    is_vector: bool

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def nested_scope(self, *, is_vector: bool | None = None) -> Scope:
        return Scope(self.lines, self.depth + 1, self.is_vector if is_vector is None else is_vector)


class CppValueCodegen:
    """The values of one region, with vectors along the axis `vector_axis`."""

    def __init__(self, passes: Passes, vector_axis: str, *, nontemporal_stores: bool = False) -> None:
        self._passes, self._vector_axis, self._nontemporal_stores = passes, vector_axis, nontemporal_stores
        self._along_row = vector_axis in passes.row
        self.scalar_values: set[str] = set()
        """Values that are one number although vectors run along an outer axis."""

    def emit_value(self, scope: Scope, entry: Load | Step | Scan) -> None:
        """Adds the line that declares a value."""
        if isinstance(entry, Load):
            scope.add(f"const auto {entry.value} = {self._load_expr(scope, entry)};")
        elif isinstance(entry, Scan):
            scope.add(
                f"const auto {entry.value} = "
                f"{entry.value}_scan.take({self.operand_expr(scope, entry.arg, entry.dtype)});"
            )
        else:
            scope.add(f"const {self._type(scope, entry.dtype)} {entry.value} = {self._step_expr(scope, entry)};")

    def emit_store(self, scope: Scope, store: Store) -> None:
        """Adds the line that writes a value out."""
        place, stride = (
            _address_expr(f"{store.buffer}_out", store.strides, store.offset),
            store.strides.get(self._vector_axis, 0),
        )
        dtype = self.compute_dtype(store.value)
        value = self.operand_expr(scope, store.value, dtype)
        if scope.is_vector and stride != 1:
            scope.add(f"scatter<Like<V, {COMPUTE_CTYPES[dtype]}>>({place}, {value}, {stride});")
        else:
            past = self._nontemporal_stores and scope.is_vector and store.dtype == "float32"
            scope.add(f"{'stream' if past else 'store'}({place}, {value});")

    def operand_expr(self, scope: Scope, arg: Operand, dtype: str) -> str:
        """A value, made as wide as its surroundings; or a number in the dtype of the step."""
        ctype = COMPUTE_CTYPES[dtype]
        if isinstance(arg, str):
            narrow = scope.is_vector and not self._is_vector(arg)
            return f"as<Like<V, {ctype}>>({arg})" if narrow else arg
        number = _literal(arg, dtype)
        return f"as<Like<V, {ctype}>>({number})" if scope.is_vector else number

    def compute_dtype(self, value: str) -> str:
        """The dtype in which a value is computed."""
        entry = self._passes.by_value[value]
        if isinstance(entry, Load) and entry.dtype in ("float16", "bfloat16"):
            return "float32"
        return entry.dtype

    def _is_vector(self, value: str) -> bool:
        """Whether its variable holds a vector: what is inside the row does, and where every lane is a row all do."""
        return self._passes.varies_along_row(value) or not (self._along_row or value in self.scalar_values)

    def _type(self, scope: Scope, dtype: str) -> str:
        return f"Like<V, {COMPUTE_CTYPES[dtype]}>" if scope.is_vector else COMPUTE_CTYPES[dtype]

    def _load_expr(self, scope: Scope, load: Load) -> str:
        place, stride = _address_expr(load.buffer, load.strides, load.offset), load.strides.get(self._vector_axis, 0)
        if not scope.is_vector:
            return f"load<float>({place})"
        if stride == 0:
            return f"as<{self._type(scope, self.compute_dtype(load.value))}>(load<float>({place}))"
        if stride != 1:
            return f"gather<V>({place}, {stride})"
        return f"{'load_ahead' if self._along_row or not self._passes.row else 'load'}<V>({place})"

    def _step_expr(self, scope: Scope, step: Step) -> str:
        text = self._wide_expr(scope, step)
        return (
            _wrap_to_dtype(f"({text})", step.dtype)
            if step.dtype in NARROW_DTYPES and step.op in _CAN_OVERFLOW
            else text
        )

    def _wide_expr(self, scope: Scope, step: Step) -> str:
        """The expression in the dtype in which it is computed, before a narrow one wraps around."""
        op, wide = step.op, scope.is_vector
        v = self._type(scope, step.dtype)
        if op == "index":
            axis = str(step.args[0])
            return f"counted<{v}>({axis})" if wide and axis == self._vector_axis else f"as<{v}>({axis})"
        if op == "constant":
            return self.operand_expr(scope, step.args[0], step.dtype)
        if op == "cast":
            return self._cast_expr(scope, step)
        dtype = step.dtype
        if op in _COMPARISONS or op in ("isnan", "isinf"):
            dtype = next(self.compute_dtype(a) for a in step.args if isinstance(a, str))
        args = [self.operand_expr(scope, arg, dtype) for arg in step.args]
        if op == "where":
            args[0] = self.operand_expr(scope, step.args[0], "bool")
            return f"choose<{v}>({', '.join(args)})"
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _COMPARISONS:
            return f"truth({args[0]} {_COMPARISONS[op]} {args[1]})"
        if op in _BITWISE:
            return f"{args[0]} {_BITWISE[op]} {args[1]}"
        if op in _INTEGER_DIVISIONS and not step.dtype.startswith("float"):
            return _integer_division_expr(step, args, v)
        if op in _FUNCTIONS:
            return f"{_FUNCTIONS[op]}<{v}>({', '.join(args)})"
        return _other_expr(op, args, v)

    def _cast_expr(self, scope: Scope, step: Step) -> str:
        source = str(step.args[0])
        arg, have = self.operand_expr(scope, source, self.compute_dtype(source)), self.compute_dtype(source)
        v = self._type(scope, step.dtype)
        if step.dtype == "bool":
            zero = f"as<{self._type(scope, have)}>(0)"
            return f"truth({arg} != {zero})"
        if have == "bool":
            return f"as<{v}>({arg} & 1)"
        return _wrap_to_dtype(f"as<{v}>({arg})", step.dtype) if have in _INTEGER_DTYPES else f"as<{v}>({arg})"


def _wrap_to_dtype(text: str, dtype: str) -> str:
    """A whole number, which is computed in 32 bits or more, as its dtype of fewer bits holds it."""
    if dtype == "uint8":
        return f"({text} & 255)"
    bits = {"int8": 24, "int16": 16}.get(dtype)
    return f"(({text} << {bits}) >> {bits})" if bits else text


def _address_expr(buffer: str, strides: dict[str, int], offset: int = 0) -> str:
    terms = [axis if stride == 1 else f"{stride} * {axis}" for axis, stride in strides.items() if stride]
    return " + ".join([buffer, *[str(offset)] * bool(offset), *terms])


def _integer_division_expr(step: Step, args: list[str], v: str) -> str:
    """Only by numbers known here: torch refuses to divide by 0, a processor stops."""
    divisor = step.args[1]
    if isinstance(divisor, str) or not divisor:
        raise Unsupported(f"{step.op} of whole numbers by {divisor}, which may be 0")
    return f"each<{v}>({', '.join(args)}, [](auto x, auto y) {{ return {_INTEGER_DIVISIONS[step.op]}; }})"


def _other_expr(op: str, args: list[str], v: str) -> str:
    one, other = args[0], args[-1]
    zero = f"as<{v}>(0)"
    simple = {
        "neg": f"-{one}",
        "square": f"{one} * {one}",
        "reciprocal": f"as<{v}>(1) / {one}",
        "rsqrt": f"as<{v}>(1) / sqrt_of<{v}>({one})",
        "relu": f"max_of<{v}>({one}, {zero})",
        "not": f"~{one}",
        "bit_not": f"~{one}",
        "isnan": f"truth({one} != {one})",
        "isinf": f"truth(({one} == {one}) & ({one} - {one} != {one} - {one}))",
        "sign": f"sign_of<{v}>({one})",
        "sgn": f"sign_of<{v}>({one})",
        "fmin": f"choose(truth(({one} < {other}) | ({other} != {other})), {one}, {other})",
        "fmax": f"choose(truth(({one} > {other}) | ({other} != {other})), {one}, {other})",
        "trunc_div": f"trunc_of<{v}>({one} / {other})",
    }
    if op in simple:
        return simple[op]
    raise Unsupported(f"{op} has no form in C++ yet")


def _literal(number: int | float | bool, dtype: str) -> str:
    ctype = COMPUTE_CTYPES[dtype]
    if dtype == "bool":
        return "-1" if number else "0"
    if isinstance(number, float) and number != number:
        return f"std::numeric_limits<{ctype}>::quiet_NaN()"
    if isinstance(number, float) and number in (float("inf"), float("-inf")):
        return f"{'-' if number < 0 else ''}std::numeric_limits<{ctype}>::infinity()"
    if dtype.startswith("float"):
        return f"{float(number)!r}{'f' if dtype == 'float32' else ''}"
    return f"{ctype}({int(number)})"
