"""C++ code for single values of a region: loads, steps and stores, as vectors or scalars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.compiler.cpp.passes import Passes
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.region import Load, Operand, Scan, Step, Store, WindowIndex

CTYPES = {
    "float32": "float", "float64": "double", "float16": "_Float16", "bfloat16": "BFloat16", "int64": "int64_t",
    "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "Bool",
}  # fmt: skip
COMPUTE_CTYPES = {"float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "bool": "int32_t"}
NARROW_DTYPES = ("int16", "int8", "uint8")
"""Computed in int32 and wrapped around to their range after each step."""
COMPUTE_CTYPES |= dict.fromkeys(NARROW_DTYPES, "int32_t")
_INTEGER_DTYPES = ("int64", "int32", *NARROW_DTYPES)
_CAN_OVERFLOW = (
    "add", "sub", "mul", "neg", "abs", "square", "pow", "floor_div", "trunc_div", "bit_not",
)  # fmt: skip
"""Steps whose results may be outside the range of the operand dtype."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARISONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_BITWISE = {"and": "&", "or": "|", "xor": "^", "bit_and": "&", "bit_or": "|", "bit_xor": "^"}
_FUNCTIONS = {
    "max": "vmax", "min": "vmin", "abs": "vabs", "exp": "vexp", "log": "vlog", "expm1": "vexpm1",
    "log1p": "vlog1p", "tanh": "vtanh", "sigmoid": "vsigmoid", "erf": "verf", "sqrt": "vsqrt",
    "log2": "vlog2", "log10": "vlog10", "clamped_mean": "clamped_mean",
    "exp_scaled": "vexp_scaled", "scaled_div": "scaled_div", "floor": "vfloor", "ceil": "vceil", "trunc": "vtrunc",
    "round": "vround", "fmod": "vfmod", "remainder": "vremainder", "floor_div": "vfloor_div",
    "exp2": "vexp2", "sin": "vsin", "cos": "vcos", "tan": "vtan", "asin": "vasin", "acos": "vacos",
    "atan": "vatan", "sinh": "vsinh", "cosh": "vcosh", "erfc": "verfc", "pow": "vpow",
}  # fmt: skip
_INTEGER_DIVISIONS = {
    "floor_div": "x / y - (x % y != 0 && (x < 0) != (y < 0))",
    "trunc_div": "x / y",
    "fmod": "x % y",
    "remainder": "x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0)",
}
"""C++ expressions for integers."""


@dataclass
class Scope:
    """A block that lines are added to, and whether its values are vectors (the template parameter `V`) or scalars."""

    lines: list[str]
    depth: int
    is_vector: bool

    def add(self, line: str) -> None:
        """Add a line at the indentation of the block."""
        self.lines.append("    " * self.depth + line)

    def nested_scope(self, *, is_vector: bool | None = None) -> Scope:
        """A block inside this one; vector or scalar as this one unless `is_vector` is set."""
        return Scope(self.lines, self.depth + 1, self.is_vector if is_vector is None else is_vector)


class CppValueCodegen:
    """Code generator for the values of one region, with vectors along `vector_axis`."""

    def __init__(self, passes: Passes, vector_axis: str, *, nontemporal_stores: bool = False) -> None:
        self._passes, self._vector_axis, self._nontemporal_stores = passes, vector_axis, nontemporal_stores
        self._along_row = vector_axis in passes.row
        self.scalar_values: set[str] = set()
        """Values that are scalars although the vectors run along an outer axis."""

    def emit_value(self, scope: Scope, entry: Load | Step | Scan) -> None:
        """Emit the declaration of a value."""
        if isinstance(entry, Load):
            scope.add(f"const auto {entry.value} = {self._load_expr(scope, entry)};")
        elif isinstance(entry, Scan):
            operand = self.operand_expr(scope, entry.arg, entry.dtype)
            scope.add(f"const auto {entry.value} = {entry.value}_scan.update({operand});")
        else:
            scope.add(f"const {self._type(scope, entry.dtype)} {entry.value} = {self._step_expr(scope, entry)};")

    def emit_store(self, scope: Scope, store: Store) -> None:
        """Emit the store of a value."""
        address = _address_expr(f"{store.buffer}_out", store.strides, store.offset)
        stride = store.strides.get(self._vector_axis, 0)
        dtype = self.compute_dtype(store.value)
        value = self.operand_expr(scope, store.value, dtype)
        if scope.is_vector and stride != 1:
            scope.add(f"scatter<Rebind<V, {COMPUTE_CTYPES[dtype]}>>({address}, {value}, {stride});")
        else:
            nontemporal = self._nontemporal_stores and scope.is_vector and store.dtype == "float32"
            scope.add(f"{'store_nontemporal' if nontemporal else 'store'}({address}, {value});")

    def operand_expr(self, scope: Scope, arg: Operand, dtype: str) -> str:
        """An operand of a step: a value, broadcast to a vector where the scope needs one, or a literal of `dtype`."""
        ctype = COMPUTE_CTYPES[dtype]
        if isinstance(arg, str):
            needs_broadcast = scope.is_vector and not self._is_vector(arg)
            return f"convert<Rebind<V, {ctype}>>({arg})" if needs_broadcast else arg
        number = _literal(arg, dtype)
        return f"convert<Rebind<V, {ctype}>>({number})" if scope.is_vector else number

    def compute_dtype(self, value: str) -> str:
        """The dtype in which a value is computed."""
        entry = self._passes.by_value[value]
        if isinstance(entry, Load) and entry.dtype in ("float16", "bfloat16"):
            return "float32"
        return entry.dtype

    def _is_vector(self, value: str) -> bool:
        """Whether a value is a vector: it varies along the row, or the vectors run along an outer axis."""
        return self._passes.varies_along_row(value) or not (self._along_row or value in self.scalar_values)

    def _type(self, scope: Scope, dtype: str) -> str:
        return f"Rebind<V, {COMPUTE_CTYPES[dtype]}>" if scope.is_vector else COMPUTE_CTYPES[dtype]

    def _load_expr(self, scope: Scope, load: Load) -> str:
        address, stride = _address_expr(load.buffer, load.strides, load.offset), load.strides.get(self._vector_axis, 0)
        if bounds := self._passes.region.open_bounds(load):
            return self._bounded_load_expr(scope, load, address, bounds)
        if not scope.is_vector:
            return f"load<float>({address})"
        if stride == 0:
            return f"convert<{self._type(scope, self.compute_dtype(load.value))}>(load<float>({address}))"
        if stride != 1:
            return f"gather<V>({address}, {stride})"
        return f"{'load_prefetch' if self._along_row or not self._passes.row else 'load'}<V>({address})"

    def _bounded_load_expr(
        self, scope: Scope, load: Load, address: str, bounds: Sequence[tuple[WindowIndex, bool, bool]]
    ) -> str:
        """A load of the lanes whose indices are in bounds: from `begin` to before `end`, unless an index that all lanes
        share is out of bounds."""
        dtype, axis = self.compute_dtype(load.value), self._vector_axis
        fill, tests = _literal(load.fill, dtype), [_test_expr(*one) for one in bounds if axis not in one[0].steps]
        along = [one for one in bounds if axis in one[0].steps]
        if not scope.is_vector or not along:
            tests += [_test_expr(*one) for one in along]
            scalar = f"{' && '.join(tests)} ? load<float>({address}) : {fill}"
            stride = load.strides.get(axis, 0)
            if not scope.is_vector:
                return scalar
            if not stride:
                return f"convert<{self._type(scope, dtype)}>({scalar})"
            begins, ends = ["0"], ["num_lanes<V>"]
        else:
            stride = load.strides.get(axis, 0)
            begins = [f"first_lane({_index_expr(one)}, {one.steps[axis]})" for one, below, _ in along if below] or ["0"]
            ends = [
                f"first_lane({_index_expr(one)} - {one.size}, {one.steps[axis]})" for one, _, above in along if above
            ] or ["num_lanes<V>"]
        begin, end = _nest("max_lane", begins), _nest("min_lane", ends)
        end = f"{' && '.join(tests)} ? {end} : 0" if tests else end
        return f"load_lanes<V>({address}, {stride}, {begin}, {end}, {fill})"

    def _step_expr(self, scope: Scope, step: Step) -> str:
        expr = self._wide_expr(scope, step)
        can_overflow = step.dtype in NARROW_DTYPES and step.op in _CAN_OVERFLOW
        return _wrap_to_dtype(f"({expr})", step.dtype) if can_overflow else expr

    def _wide_expr(self, scope: Scope, step: Step) -> str:
        """The expression in the compute dtype, before the result is wrapped around to a narrow dtype."""
        op, v = step.op, self._type(scope, step.dtype)
        if op == "index":
            axis = str(step.args[0])
            is_vector_index = scope.is_vector and axis == self._vector_axis
            return f"iota_from<{v}>({axis})" if is_vector_index else f"convert<{v}>({axis})"
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
            return f"select<{v}>({', '.join(args)})"
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _COMPARISONS:
            return f"to_mask({args[0]} {_COMPARISONS[op]} {args[1]})"
        if op in _BITWISE:
            return f"{args[0]} {_BITWISE[op]} {args[1]}"
        if op in _INTEGER_DIVISIONS and not step.dtype.startswith("float"):
            return _integer_division_expr(step, args, v)
        if op in _FUNCTIONS:
            return f"{_FUNCTIONS[op]}<{v}>({', '.join(args)})"
        return _other_expr(op, args, v)

    def _cast_expr(self, scope: Scope, step: Step) -> str:
        source = str(step.args[0])
        source_dtype = self.compute_dtype(source)
        arg = self.operand_expr(scope, source, source_dtype)
        v = self._type(scope, step.dtype)
        if step.dtype == "bool":
            zero = f"convert<{self._type(scope, source_dtype)}>(0)"
            return f"to_mask({arg} != {zero})"
        if source_dtype == "bool":
            return f"convert<{v}>({arg} & 1)"
        converted = f"convert<{v}>({arg})"
        return _wrap_to_dtype(converted, step.dtype) if source_dtype in _INTEGER_DTYPES else converted


def _wrap_to_dtype(expr: str, dtype: str) -> str:
    """An integer expression of 32 bits or more, wrapped around to the range of `dtype`."""
    if dtype == "uint8":
        return f"({expr} & 255)"
    bits = {"int8": 24, "int16": 16}.get(dtype)
    return f"(({expr} << {bits}) >> {bits})" if bits else expr


def _address_expr(buffer: str, strides: dict[str, int], offset: int = 0) -> str:
    terms = [axis if stride == 1 else f"{stride} * {axis}" for axis, stride in strides.items() if stride]
    return " + ".join([buffer, *[str(offset)] * bool(offset), *terms])


def _nest(function: str, args: Sequence[str]) -> str:
    """A call of a function of two arguments for each further argument."""
    expr = args[0]
    for arg in args[1:]:
        expr = f"{function}({expr}, {arg})"
    return expr


def _index_expr(index: WindowIndex) -> str:
    terms = [axis if step == 1 else f"{step} * {axis}" for axis, step in index.steps.items()]
    return " + ".join([*terms, *[str(index.start)] * bool(index.start or not terms)])


def _test_expr(index: WindowIndex, below: bool, above: bool) -> str:
    """The test of the index of a window: whether it is in bounds."""
    expr = _index_expr(index)
    return " && ".join([f"{expr} >= 0"] * below + [f"{expr} < {index.size}"] * above)


def _integer_division_expr(step: Step, args: list[str], v: str) -> str:
    """Integer division by a constant: torch raises on division by 0, a processor traps."""
    divisor = step.args[1]
    if isinstance(divisor, str) or not divisor:
        raise Unsupported(f"{step.op} of integers by {divisor}, which may be 0")
    return f"map_lanes<{v}>({', '.join(args)}, [](auto x, auto y) {{ return {_INTEGER_DIVISIONS[step.op]}; }})"


def _other_expr(op: str, args: list[str], v: str) -> str:
    x, y = args[0], args[-1]
    zero = f"convert<{v}>(0)"
    exprs = {
        "neg": f"-{x}",
        "square": f"{x} * {x}",
        "reciprocal": f"convert<{v}>(1) / {x}",
        "rsqrt": f"convert<{v}>(1) / vsqrt<{v}>({x})",
        "relu": f"vmax<{v}>({x}, {zero})",
        "not": f"~{x}",
        "bit_not": f"~{x}",
        "isnan": f"to_mask({x} != {x})",
        "isinf": f"to_mask(({x} == {x}) & ({x} - {x} != {x} - {x}))",
        "sign": f"vsign<{v}>({x})",
        "sgn": f"vsign<{v}>({x})",
        "fmin": f"select(to_mask(({x} < {y}) | ({y} != {y})), {x}, {y})",
        "fmax": f"select(to_mask(({x} > {y}) | ({y} != {y})), {x}, {y})",
        "trunc_div": f"vtrunc<{v}>({x} / {y})",
    }
    if op in exprs:
        return exprs[op]
    raise Unsupported(f"{op} is not supported by the C++ backend")


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
