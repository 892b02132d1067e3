"""How one value of a region is said in C++: loads, steps, stores, as a vector or as a single number."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.compiler.cpp.passes import Passes
from kernelwright.compiler.regions.axes import Misfit
from kernelwright.compiler.regions.region import Load, Operand, Scan, Step, Store

CTYPES = {
    "float32": "float", "float64": "double", "float16": "_Float16", "bfloat16": "BFloat16", "int64": "int64_t",
    "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "Bool",
}  # fmt: skip
COMPUTED = {"float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "bool": "int32_t"}
NARROW = ("int16", "int8", "uint8")
"""Computed in int32: what leaves their range is wrapped around after the step."""
COMPUTED |= dict.fromkeys(NARROW, "int32_t")
_WHOLE = ("int64", "int32", *NARROW)
_LEAVES_RANGE = (
    "add", "sub", "mul", "neg", "abs", "square", "pow", "floor_div", "trunc_div", "bit_not",
)  # fmt: skip
"""Steps whose results may lie outside the range of their operands' dtype."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_BITWISE = {"and": "&", "or": "|", "xor": "^", "bit_and": "&", "bit_or": "|", "bit_xor": "^"}
_CALLED = {
    "max": "max_of", "min": "min_of", "abs": "abs_of", "exp": "exp_of", "log": "log_of", "expm1": "expm1_of",
    "log1p": "log1p_of", "tanh": "tanh_of", "sigmoid": "sigmoid_of", "erf": "erf_of", "sqrt": "sqrt_of",
    "log2": "log2_of", "log10": "log10_of", "mean_of": "mean_of",
    "exp_scaled": "exp_scaled_of", "share": "share_of", "floor": "floor_of", "ceil": "ceil_of", "trunc": "trunc_of",
    "round": "round_of", "fmod": "fmod_of", "remainder": "remainder_of", "floor_div": "floor_divided",
    "exp2": "exp2_of", "sin": "sin_of", "cos": "cos_of", "tan": "tan_of", "asin": "asin_of", "acos": "acos_of",
    "atan": "atan_of", "sinh": "sinh_of", "cosh": "cosh_of", "erfc": "erfc_of", "pow": "pow_of",
}  # fmt: skip
_DIVISIONS = {
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
    wide: bool

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def inside(self, *, wide: bool | None = None) -> Scope:
        return Scope(self.lines, self.depth + 1, self.wide if wide is None else wide)


class Forms:
    """The values of one region, with vectors along the axis `lanes`."""

    def __init__(self, passes: Passes, lanes: str, *, past_caches: bool = False) -> None:
        self._passes, self._lanes, self._past_caches = passes, lanes, past_caches
        self._along_row = lanes in passes.row
        self.narrow: set[str] = set()
        """Values that are one number although vectors run along an outer axis."""

    def value(self, scope: Scope, entry: Load | Step | Scan) -> None:
        """Adds the line that declares a value."""
        if isinstance(entry, Load):
            scope.add(f"const auto {entry.value} = {self._loaded(scope, entry)};")
        elif isinstance(entry, Scan):
            scope.add(
                f"const auto {entry.value} = {entry.value}_scan.take({self.operand(scope, entry.arg, entry.dtype)});"
            )
        else:
            scope.add(f"const {self._type(scope, entry.dtype)} {entry.value} = {self._expression(scope, entry)};")

    def store(self, scope: Scope, store: Store) -> None:
        """Adds the line that writes a value out."""
        place, stride = _place(f"{store.buffer}_out", store.strides, store.offset), store.strides.get(self._lanes, 0)
        dtype = self.dtype(store.value)
        value = self.operand(scope, store.value, dtype)
        if scope.wide and stride != 1:
            scope.add(f"scatter<Like<V, {COMPUTED[dtype]}>>({place}, {value}, {stride});")
        else:
            past = self._past_caches and scope.wide and store.dtype == "float32"
            scope.add(f"{'stream' if past else 'store'}({place}, {value});")

    def operand(self, scope: Scope, arg: Operand, dtype: str) -> str:
        """A value, made as wide as its surroundings; or a number in the dtype of the step."""
        ctype = COMPUTED[dtype]
        if isinstance(arg, str):
            narrow = scope.wide and not self._is_wide_here(arg)
            return f"as<Like<V, {ctype}>>({arg})" if narrow else arg
        number = _literal(arg, dtype)
        return f"as<Like<V, {ctype}>>({number})" if scope.wide else number

    def dtype(self, value: str) -> str:
        """The dtype in which a value is computed."""
        entry = self._passes.by_value[value]
        if isinstance(entry, Load) and entry.dtype in ("float16", "bfloat16"):
            return "float32"
        return entry.dtype

    def _is_wide_here(self, value: str) -> bool:
        """Whether its variable holds a vector: what is inside the row does, and where every lane is a row all do."""
        return self._passes.inner(value) or not (self._along_row or value in self.narrow)

    def _type(self, scope: Scope, dtype: str) -> str:
        return f"Like<V, {COMPUTED[dtype]}>" if scope.wide else COMPUTED[dtype]

    def _loaded(self, scope: Scope, load: Load) -> str:
        place, stride = _place(load.buffer, load.strides, load.offset), load.strides.get(self._lanes, 0)
        if not scope.wide:
            return f"load<float>({place})"
        if stride == 0:
            return f"as<{self._type(scope, self.dtype(load.value))}>(load<float>({place}))"
        if stride != 1:
            return f"gather<V>({place}, {stride})"
        return f"{'load_ahead' if self._along_row or not self._passes.row else 'load'}<V>({place})"

    def _expression(self, scope: Scope, step: Step) -> str:
        text = self._in_wider(scope, step)
        return _narrowed(f"({text})", step.dtype) if step.dtype in NARROW and step.op in _LEAVES_RANGE else text

    def _in_wider(self, scope: Scope, step: Step) -> str:
        """The expression in the dtype in which it is computed, before a narrow one wraps around."""
        op, wide = step.op, scope.wide
        v = self._type(scope, step.dtype)
        if op == "index":
            axis = str(step.args[0])
            return f"counted<{v}>({axis})" if wide and axis == self._lanes else f"as<{v}>({axis})"
        if op == "constant":
            return self.operand(scope, step.args[0], step.dtype)
        if op == "cast":
            return self._cast(scope, step)
        dtype = step.dtype
        if op in _COMPARED or op in ("isnan", "isinf"):
            dtype = next(self.dtype(a) for a in step.args if isinstance(a, str))
        args = [self.operand(scope, arg, dtype) for arg in step.args]
        if op == "where":
            args[0] = self.operand(scope, step.args[0], "bool")
            return f"choose<{v}>({', '.join(args)})"
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _COMPARED:
            return f"truth({args[0]} {_COMPARED[op]} {args[1]})"
        if op in _BITWISE:
            return f"{args[0]} {_BITWISE[op]} {args[1]}"
        if op in _DIVISIONS and not step.dtype.startswith("float"):
            return _whole_division(step, args, v)
        if op in _CALLED:
            return f"{_CALLED[op]}<{v}>({', '.join(args)})"
        return _rare(op, args, v)

    def _cast(self, scope: Scope, step: Step) -> str:
        source = str(step.args[0])
        arg, have = self.operand(scope, source, self.dtype(source)), self.dtype(source)
        v = self._type(scope, step.dtype)
        if step.dtype == "bool":
            zero = f"as<{self._type(scope, have)}>(0)"
            return f"truth({arg} != {zero})"
        if have == "bool":
            return f"as<{v}>({arg} & 1)"
        return _narrowed(f"as<{v}>({arg})", step.dtype) if have in _WHOLE else f"as<{v}>({arg})"


def _narrowed(text: str, dtype: str) -> str:
    """A whole number, which is computed in 32 bits or more, as its dtype of fewer bits holds it."""
    if dtype == "uint8":
        return f"({text} & 255)"
    bits = {"int8": 24, "int16": 16}.get(dtype)
    return f"(({text} << {bits}) >> {bits})" if bits else text


def _place(buffer: str, strides: dict[str, int], offset: int = 0) -> str:
    terms = [axis if stride == 1 else f"{stride} * {axis}" for axis, stride in strides.items() if stride]
    return " + ".join([buffer, *[str(offset)] * bool(offset), *terms])


def _whole_division(step: Step, args: list[str], v: str) -> str:
    """Only by numbers known here: torch refuses to divide by 0, a processor stops."""
    divisor = step.args[1]
    if isinstance(divisor, str) or not divisor:
        raise Misfit(f"{step.op} of whole numbers by {divisor}, which may be 0")
    return f"each<{v}>({', '.join(args)}, [](auto x, auto y) {{ return {_DIVISIONS[step.op]}; }})"


def _rare(op: str, args: list[str], v: str) -> str:
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
    raise Misfit(f"{op} has no form in C++ yet")


def _literal(number: int | float | bool, dtype: str) -> str:
    ctype = COMPUTED[dtype]
    if dtype == "bool":
        return "-1" if number else "0"
    if isinstance(number, float) and number != number:
        return f"std::numeric_limits<{ctype}>::quiet_NaN()"
    if isinstance(number, float) and number in (float("inf"), float("-inf")):
        return f"{'-' if number < 0 else ''}std::numeric_limits<{ctype}>::infinity()"
    if dtype.startswith("float"):
        return f"{float(number)!r}{'f' if dtype == 'float32' else ''}"
    return f"{ctype}({int(number)})"
