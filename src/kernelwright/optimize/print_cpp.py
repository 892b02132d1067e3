"""A region as C++ for the CPU: vectors along one axis, threads over the rows, one pass over a row for each reduction
that the next needs.

Where the vectors run along the row, lanes are added up at its end. Where they run along an outer axis, every lane is
a row of its own and a reduction is a plain loop. A region without reductions is the second kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from kernelwright.core.records import Record
from kernelwright.optimize.axes import Misfit
from kernelwright.optimize.region import SPECIAL, Load, Operand, Reduction, Region, Scan, Step, Store

CTYPES = {
    "float32": "float", "float64": "double", "float16": "_Float16", "bfloat16": "BFloat16", "int64": "int64_t",
    "int32": "int32_t", "bool": "Bool",
}  # fmt: skip
COMPUTED = {"float32": "float", "float64": "double", "int64": "int64_t", "int32": "int32_t", "bool": "int32_t"}
FOLDS = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "any": "Any", "all": "All"}
KEPT_BYTES = 256 * 1024
"""A row of values that are dear to compute again is kept while it fits into the nearer caches."""
LEAST_TASK = 4096
"""Elements that a thread takes at a time, where rows are short."""

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
_COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_BITWISE = {"and": "&", "or": "|", "xor": "^", "bit_and": "&", "bit_or": "|", "bit_xor": "^"}
_CALLED = {
    "max": "max_of", "min": "min_of", "abs": "abs_of", "exp": "exp_of", "log": "log_of", "expm1": "expm1_of",
    "log1p": "log1p_of", "tanh": "tanh_of", "sigmoid": "sigmoid_of", "erf": "erf_of", "sqrt": "sqrt_of",
}  # fmt: skip
_LIBRARY = (
    "exp2", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "erfc", "floor", "ceil",
    "trunc",
)  # fmt: skip
_LIBRARY_OF_TWO = {"pow": "std::pow", "fmod": "std::fmod"}


class CpuChoice(Record, frozen=True, kw_only=True):
    """How a region is run: the axis of the vectors, whether on all threads, into how many parts a row is cut."""

    lanes: str
    threads: bool = True
    parts: int = 1


def choices(region: Region) -> list[CpuChoice]:
    """The space of one region, the likeliest first; nothing for a single element."""
    axes = lane_axes(region)
    found = [CpuChoice(lanes=axis, threads=threads) for axis in axes[:2] for threads in (True, False)]
    row = {axis.name for axis in region.row}
    if axes and axes[0] in row and region.rows < 16:
        found.insert(0, CpuChoice(lanes=axes[0], parts=64))
    return found


def lane_axes(region: Region) -> list[str]:
    """Axes along which memory lies together, by the bytes that do."""
    weight: dict[str, float] = {}
    for place in (*region.loads, *region.stores):
        for axis, stride in place.strides.items():
            if stride == 1:
                weight[axis] = weight.get(axis, 0.0) + prod(
                    a.size for a in (*region.outer, *region.row) if place.strides.get(a.name)
                )
    return sorted(weight, key=lambda axis: -weight[axis])


@dataclass
class _Scope:
    """Where lines go, and how wide the values there are: `V` of a template, or one `float`."""

    lines: list[str]
    depth: int
    wide: bool

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)


def print_cpp(region: Region, choice: CpuChoice) -> str:
    """The function `extern "C" void NAME(inputs..., outputs...)`, to stand behind `vector.h`.

    Raises:
        Misfit: a step that has no form here.
    """
    return _Printer(region, choice).text()


def arguments(region: Region) -> tuple[list[str], list[str]]:
    """Names of the tensors that the function reads and writes, in its order."""
    return list(dict.fromkeys(load.buffer for load in region.loads)), [store.buffer for store in region.stores]


class _Printer:
    def __init__(self, region: Region, choice: CpuChoice) -> None:
        self.region, self.choice = region, choice
        self.sizes = {axis.name: axis.size for axis in (*region.outer, *region.row)}
        self.row = [axis.name for axis in region.row]
        self.lanes = choice.lanes
        self.along_row = self.lanes in self.row
        self.by_value: dict[str, Load | Step | Reduction | Scan] = {load.value: load for load in region.loads}
        self.by_value |= {step.value: step for step in region.steps}
        self.passes = max(region.sweep_of.values(), default=0) + 1
        self.kept = self._kept() if self.along_row and choice.parts == 1 else []

    # ---- what belongs where

    def _inner(self, value: str) -> bool:
        return bool(self.region.axes_of[value] & set(self.row))

    def _targets(self, at: int) -> list[Reduction | Store]:
        """What a pass is for: reductions, and values that are written element by element."""
        sweep = self.region.sweep_of
        found: list[Reduction | Store] = [
            step for step in self.region.steps if isinstance(step, Reduction) and sweep[step.arg] == at
        ]
        return found + [s for s in self.region.stores if sweep[s.value] == at and self._inner(s.value)]

    def _needed(self, wanted: Iterable[str], inner: bool, stop: Iterable[str] = ()) -> list[Load | Step]:
        """Loads and steps behind some values, in order, as far as they are of the same depth."""
        todo, found, held = list(wanted), set(), set(stop)
        while todo:
            value = todo.pop()
            source = self.by_value[value]
            if value in found or value in held or isinstance(source, Reduction) or self._inner(value) != inner:
                continue
            found.add(value)
            if isinstance(source, Step) and source.op != "index":
                todo += [arg for arg in source.args if isinstance(arg, str)]
        order = [*self.region.loads, *(s for s in self.region.steps if isinstance(s, Step))]
        return [entry for entry in order if entry.value in found]

    def _kept(self) -> list[str]:
        """Dear values that a later pass needs again."""
        if self.passes < 2 or self.region.row_size * 8 > KEPT_BYTES:
            return []
        sweep, found = self.region.sweep_of, []
        for at in range(1, self.passes):
            for entry in self._needed([_arg(target) for target in self._targets(at)], True):
                if isinstance(entry, Step) and entry.op in SPECIAL and sweep[entry.value] < at:
                    found.append(entry.value)
        return list(dict.fromkeys(found))

    # ---- text

    def text(self) -> str:
        inputs, outputs = arguments(self.region)
        types = {load.buffer: load.dtype for load in self.region.loads}
        written = {store.buffer: store.dtype for store in self.region.stores}
        given = [f"const {CTYPES[types[name]]}* __restrict__ {name}" for name in inputs]
        given += [f"{CTYPES[written[name]]}* __restrict__ {name}_out" for name in outputs]
        self.out: list[str] = [f'extern "C" void {self.region.name}({", ".join(given)}) {{']
        if self.along_row:
            self._rows()
        else:
            self._columns()
        self.out.append("}")
        return "\n".join(self.out) + "\n"

    def _parallel(self) -> None:
        if self.choice.threads:
            self.out.append("#pragma omp parallel for schedule(static)")

    def _axes(self, scope: _Scope, names: list[str], index: str) -> None:
        """Outer positions from one running number."""
        rest = index
        for name in reversed(names):
            size = self.sizes[name]
            last = name == names[0]
            scope.add(f"const int64_t {name} = {rest if last else f'{rest} % {size}'};")
            rest = f"({rest} / {size})" if not last else rest

    def _rows(self) -> None:
        """Vectors along the row: every row by itself."""
        outer = [axis.name for axis in self.region.outer]
        scope = _Scope(self.out, 2, wide=False)
        if self.choice.parts == 1:
            self._parallel()
        self.out.append(f"    for (int64_t row = 0; row < {self.region.rows}; ++row) {{")
        if outer:
            self._axes(scope, outer, "row")
        for value in self.kept:
            ctype = COMPUTED[self._dtype(value)]
            scope.add(f"static thread_local {ctype} kept_{value}[{self.region.row_size}] __attribute__((aligned(64)));")
        made: set[str] = set()
        for at in range(self.passes):
            self._settled(scope, at, made)
            self._row_pass(scope, at, made)
        self._settled(scope, self.passes, made)
        self._store_outer(scope, made)
        self.out.append("    }")

    def _row_pass(self, scope: _Scope, at: int, made: set[str]) -> None:
        targets = self._targets(at)
        if not targets:
            return None
        wanted = [_arg(target) for target in targets] + [v for v in self.kept if self.region.sweep_of[v] == at]
        held = [value for value in self.kept if self.region.sweep_of[value] < at]
        self._outer_values(scope, wanted, made, held)
        folds = [target for target in targets if isinstance(target, Reduction)]
        if self.choice.parts > 1:
            return self._row_parts(scope, targets, folds, wanted)
        for fold in folds:
            scope.add(f"{self._fold(fold)} {fold.value}_fold;")
        self._row_loops(scope, targets, wanted, held, "0", str(self.sizes[self.lanes]), folds)
        for fold in folds:
            scope.add(f"const {COMPUTED[fold.dtype]} {fold.value} = {fold.value}_fold.value();")
            made.add(fold.value)
        return None

    def _row_parts(
        self, scope: _Scope, targets: list[Reduction | Store], folds: list[Reduction], wanted: list[str]
    ) -> None:
        """The row cut into parts, each with a thread; their results are put together in order."""
        parts, size = self.choice.parts, self.sizes[self.lanes]
        for fold in folds:
            scope.add(f"{COMPUTED[fold.dtype]} {fold.value}_part[{parts}];")
        self._parallel()
        scope.add(f"for (int64_t part = 0; part < {parts}; ++part) {{")
        inside = _Scope(self.out, scope.depth + 1, wide=False)
        for fold in folds:
            inside.add(f"{self._fold(fold)} {fold.value}_fold;")
        low, high = f"{size} * part / {parts}", f"{size} * (part + 1) / {parts}"
        self._row_loops(inside, targets, wanted, [], low, high, folds)
        for fold in folds:
            inside.add(f"{fold.value}_part[part] = {fold.value}_fold.value();")
        scope.add("}")
        for fold in folds:
            scope.add(f"{self._fold(fold)} {fold.value}_all;")
            scope.add(f"for (const auto part : {fold.value}_part) {fold.value}_all.template take<float>(part, 0);")
            scope.add(f"const {COMPUTED[fold.dtype]} {fold.value} = {fold.value}_all.value();")

    def _row_loops(
        self,
        scope: _Scope,
        targets: list[Reduction | Store],
        wanted: list[str],
        held: list[str],
        low: str,
        high: str,
        folds: list[Reduction],
    ) -> None:
        depth = scope.depth
        for name in self.row:
            if name != self.lanes:
                _Scope(self.out, depth, False).add(f"for (int64_t {name} = 0; {name} < {self.sizes[name]}; ++{name})")
                depth += 1
        head = _Scope(self.out, depth, False)
        head.add(f"walk({low}, {high}, [&]<typename V>(int64_t {self.lanes}, int u) {{")
        inside = _Scope(self.out, depth + 1, wide=True)
        self._held(inside, held)
        for entry in self._needed(wanted, True, held):
            self._value(inside, entry)
        for value in self.kept:
            if value in wanted and value not in held:
                inside.add(f"store(kept_{value} + {self._row_place()}, {value});")
        for target in targets:
            if isinstance(target, Reduction):
                taken = self._operand(inside, target.arg, target.dtype)
                inside.add(f"{target.value}_fold.template take<V>({taken}, u);")
            else:
                self._store(inside, target)
        head.add("}" + "".join(f", {fold.value}_fold" for fold in folds) + ");")

    def _held(self, scope: _Scope, held: list[str]) -> None:
        for value in held:
            scope.add(f"const auto {value} = load<V>(kept_{value} + {self._row_place()});")

    def _row_place(self) -> str:
        """The running number of an element in its row."""
        terms, step = [], 1
        for name in reversed(self.row):
            terms.append(name if step == 1 else f"{step} * {name}")
            step *= self.sizes[name]
        return " + ".join(reversed(terms))

    def _fold(self, fold: Reduction) -> str:
        if fold.op not in FOLDS:
            raise Misfit(f"{fold.op} has no vectors yet")
        return f"Fold<{FOLDS[fold.op]}, {COMPUTED[fold.dtype]}>"

    def _columns(self) -> None:
        """Vectors along an outer axis: every lane is a row."""
        outer = [axis.name for axis in self.region.outer if axis.name != self.lanes]
        size = self.sizes[self.lanes]
        each = max(1, -(-LEAST_TASK // max(self.region.row_size, 1)))
        chunk = min(size, -(-each // 64) * 64)
        chunks = -(-size // chunk)
        tasks = prod(self.sizes[name] for name in outer) * chunks
        self._parallel()
        self.out.append(f"    for (int64_t task = 0; task < {tasks}; ++task) {{")
        scope = _Scope(self.out, 2, wide=False)
        if outer:
            self._axes(scope, outer, f"(task / {chunks})" if chunks > 1 else "task")
        low = f"(task % {chunks}) * {chunk}" if chunks > 1 else "0"
        scope.add(f"const int64_t low = {low}, high = low + {chunk} < {size} ? low + {chunk} : {size};")
        scope.add(f"walk(low, high, [&]<typename V>(int64_t {self.lanes}, int) {{")
        inside = _Scope(self.out, 3, wide=True)
        made: set[str] = set()
        for at in range(self.passes):
            self._settled(inside, at, made)
            self._column_pass(inside, at, made)
        self._settled(inside, self.passes, made)
        self._store_outer(inside, made)
        scope.add("});")
        self.out.append("    }")

    def _column_pass(self, scope: _Scope, at: int, made: set[str]) -> None:
        targets = self._targets(at)
        if not targets:
            return
        wanted = [_arg(target) for target in targets]
        self._outer_values(scope, wanted, made, [])
        folds = [target for target in targets if isinstance(target, Reduction)]
        for fold in folds:
            if fold.op not in FOLDS:
                raise Misfit(f"{fold.op} has no vectors yet")
            scope.add(f"Running<{FOLDS[fold.op]}, Like<V, {COMPUTED[fold.dtype]}>> {fold.value}_fold;")
        depth = scope.depth
        for name in self.row:
            _Scope(self.out, depth, True).add(f"for (int64_t {name} = 0; {name} < {self.sizes[name]}; ++{name}) {{")
            depth += 1
        inside = _Scope(self.out, depth, wide=True)
        for entry in self._needed(wanted, True):
            self._value(inside, entry)
        for target in targets:
            if isinstance(target, Reduction):
                inside.add(f"{target.value}_fold.take({self._operand(inside, target.arg, target.dtype)});")
            else:
                self._store(inside, target)
        for _ in self.row:
            depth -= 1
            _Scope(self.out, depth, True).add("}")
        for fold in folds:
            scope.add(f"const auto {fold.value} = {fold.value}_fold.value();")
            made.add(fold.value)

    def _settled(self, scope: _Scope, at: int, made: set[str]) -> None:
        """Values of the whole row that can be had before a pass and that a store wants."""
        stored = [store.value for store in self.region.stores if not self._inner(store.value)]
        self._outer_values(scope, [value for value in stored if self.region.sweep_of[value] == at], made, [])

    def _outer_values(self, scope: _Scope, wanted: Iterable[str], made: set[str], held: Iterable[str]) -> None:
        """Writes down what some values need of the whole row."""
        behind: list[str] = []
        for entry in self._needed(wanted, True, held):
            if isinstance(entry, Step) and entry.op != "index":
                behind += [arg for arg in entry.args if isinstance(arg, str) and not self._inner(arg)]
        behind += [value for value in wanted if not self._inner(value)]
        for entry in self._needed(behind, False):
            if entry.value not in made:
                self._value(scope, entry)
                made.add(entry.value)

    def _store_outer(self, scope: _Scope, made: set[str]) -> None:
        for store in self.region.stores:
            if not self._inner(store.value):
                self._store(scope, store)

    # ---- one value

    def _dtype(self, value: str) -> str:
        entry = self.by_value[value]
        if isinstance(entry, Load) and entry.dtype in ("float16", "bfloat16"):
            return "float32"
        return entry.dtype

    def _type(self, scope: _Scope, dtype: str) -> str:
        return f"Like<V, {COMPUTED[dtype]}>" if scope.wide else COMPUTED[dtype]

    def _value(self, scope: _Scope, entry: Load | Step) -> None:
        if isinstance(entry, Load):
            scope.add(f"const auto {entry.value} = {self._loaded(scope, entry)};")
        else:
            scope.add(f"const {self._type(scope, entry.dtype)} {entry.value} = {self._expression(scope, entry)};")

    def _loaded(self, scope: _Scope, load: Load) -> str:
        place, stride = self._place(load.buffer, load.strides), load.strides.get(self.lanes, 0)
        if not scope.wide:
            return f"load<float>({place})"
        if stride == 0:
            return f"as<{self._type(scope, self._dtype(load.value))}>(load<float>({place}))"
        return f"load<V>({place})" if stride == 1 else f"gather<V>({place}, {stride})"

    def _store(self, scope: _Scope, store: Store) -> None:
        place, stride = self._place(f"{store.buffer}_out", store.strides), store.strides.get(self.lanes, 0)
        value = self._operand(scope, store.value, self._dtype(store.value))
        if scope.wide and stride != 1:
            scope.add(f"scatter<Like<V, {COMPUTED[self._dtype(store.value)]}>>({place}, {value}, {stride});")
        else:
            scope.add(f"store({place}, {value});")

    def _place(self, buffer: str, strides: dict[str, int]) -> str:
        terms = [axis if stride == 1 else f"{stride} * {axis}" for axis, stride in strides.items() if stride]
        return " + ".join([buffer, *terms])

    def _operand(self, scope: _Scope, arg: Operand, dtype: str) -> str:
        """A value, made as wide as its surroundings; or a number in the dtype of the step."""
        ctype = COMPUTED[dtype]
        if isinstance(arg, str):
            narrow = scope.wide and not self._is_wide_here(arg)
            return f"as<Like<V, {ctype}>>({arg})" if narrow else arg
        number = _literal(arg, dtype)
        return f"as<Like<V, {ctype}>>({number})" if scope.wide else number

    def _is_wide_here(self, value: str) -> bool:
        """Whether its variable holds a vector: what is inside the row does, and where every lane is a row all do."""
        return self._inner(value) or not self.along_row

    def _expression(self, scope: _Scope, step: Step) -> str:
        op, wide = step.op, scope.wide
        v = self._type(scope, step.dtype)
        if op == "index":
            axis = str(step.args[0])
            if wide and axis == self.lanes:
                return f"counted<V>({axis})"
            return f"as<{v}>({axis})"
        if op == "constant":
            return self._operand(scope, step.args[0], step.dtype)
        if op == "cast":
            return self._cast(scope, step)
        dtype = step.dtype
        if op in _COMPARED or op in ("isnan", "isinf"):
            dtype = next(self._dtype(a) for a in step.args if isinstance(a, str))
        args = [self._operand(scope, arg, dtype) for arg in step.args]
        if op == "where":
            args[0] = self._operand(scope, step.args[0], "bool")
            return f"choose<{v}>({', '.join(args)})"
        if op in _INFIX:
            return f"{args[0]} {_INFIX[op]} {args[1]}"
        if op in _COMPARED:
            return f"truth({args[0]} {_COMPARED[op]} {args[1]})"
        if op in _BITWISE:
            return f"{args[0]} {_BITWISE[op]} {args[1]}"
        if op in _CALLED:
            return f"{_CALLED[op]}<{v}>({', '.join(args)})"
        return self._rare(op, args, v, step.dtype)

    def _cast(self, scope: _Scope, step: Step) -> str:
        source = str(step.args[0])
        arg, have = self._operand(scope, source, self._dtype(source)), self._dtype(source)
        v = self._type(scope, step.dtype)
        if step.dtype == "bool":
            zero = f"as<{self._type(scope, have)}>(0)"
            return f"truth({arg} != {zero})"
        return f"as<{v}>({arg} & 1)" if have == "bool" else f"as<{v}>({arg})"

    def _rare(self, op: str, args: list[str], v: str, dtype: str) -> str:
        one = args[0]
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
            "sign": f"sign_of<{v}>({one})",
        }
        if op in simple:
            return simple[op]
        if op in _LIBRARY:
            return f"each<{v}>({one}, [](auto x) {{ return std::{op}(x); }})"
        if op == "round":
            return f"each<{v}>({one}, [](auto x) {{ return std::nearbyint(x); }})"
        if op == "floor_div" and dtype.startswith("float"):
            return f"each<{v}>({one} / {args[1]}, [](auto x) {{ return std::floor(x); }})"
        if op in _LIBRARY_OF_TWO:
            return f"each<{v}>({one}, {args[1]}, [](auto x, auto y) {{ return {_LIBRARY_OF_TWO[op]}(x, y); }})"
        raise Misfit(f"{op} has no form in C++ yet")


def _arg(target: Reduction | Store) -> str:
    return target.arg if isinstance(target, Reduction) else target.value


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
