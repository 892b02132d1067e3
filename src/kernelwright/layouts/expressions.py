"""Evaluates layout expressions and records every step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelwright.layouts import access, algebra, casting, layout, swizzling, tiling, tuples
from kernelwright.layouts.atoms import CopyAtom, MmaAtom, get_atom
from kernelwright.layouts.errors import LayoutError
from kernelwright.layouts.explanations import EXPLANATIONS
from kernelwright.layouts.layout import Layout, as_layout
from kernelwright.layouts.parsing import Node, parse, with_location
from kernelwright.layouts.swizzle import ComposedLayout, Swizzle
from kernelwright.layouts.tuples import format_tuple

FUNCTIONS: dict[str, Callable[..., Any]] = {
    fn.__name__: fn
    for fn in (
        *(algebra.coalesce, algebra.filter, algebra.composition, algebra.complement),
        *(algebra.right_inverse, algebra.left_inverse, algebra.nullspace),
        *(algebra.max_common_layout, algebra.max_common_vector),
        *(tiling.logical_divide, tiling.zipped_divide, tiling.tiled_divide, tiling.flat_divide),
        *(tiling.logical_product, tiling.zipped_product, tiling.tiled_product, tiling.flat_product),
        *(tiling.blocked_product, tiling.raked_product),
        *(casting.upcast, casting.downcast, casting.recast),
        *(layout.make_layout, layout.size, layout.cosize, layout.select, layout.take, layout.group),
        *(layout.append, layout.prepend, layout.replace),
        *(tuples.rank, tuples.depth, tuples.flatten, tuples.product, tuples.inner_product),
        *(tuples.prefix_product, tuples.suffix_product, tuples.shape_div, tuples.ceil_div),
        *(tuples.crd2idx, tuples.idx2crd, tuples.compatible, tuples.congruent),
        *(access.bank_conflicts, access.coalescing, swizzling.find_swizzle),
    )
}
SHAPE_FUNCTIONS = frozenset(
    [
        "rank",
        "depth",
        "flatten",
        "product",
        "inner_product",
        "prefix_product",
        "suffix_product",
        "shape_div",
        "ceil_div",
        "crd2idx",
        "idx2crd",
        "compatible",
        "congruent",
        "size",
    ]
)
"""Functions that accept shapes; all others convert a shape as first argument to its compact layout."""


ACCESS_QUERIES = ("bank_conflicts", "coalescing", "find_swizzle")


@dataclass(frozen=True)
class ThreadValues:
    """The TV layout of a matrix: (thread, value) -> row + rows * column."""

    name: str
    layout: Layout
    shape: tuple[int, int]

    def __str__(self) -> str:
        return str(self.layout)


@dataclass(frozen=True)
class Step:
    """One operation: the call with evaluated arguments, its result, and an explanation."""

    call: str
    result: str
    explanation: tuple[str, ...] = ()


@dataclass
class Evaluation:
    """The value of an expression and every operation that led to it."""

    source: str
    value: Any = None
    steps: list[Step] = field(default_factory=list)


def evaluate(source: str, element_bytes: int = 4) -> Evaluation:
    """Evaluate an expression.

    Args:
        element_bytes: default for `bank_conflicts`, `coalescing` and `find_swizzle` called with a layout only.
    Raises:
        LayoutError: it cannot be parsed or has no result; `where` holds the text with the offending part marked.
    """
    evaluation, node = Evaluation(source), parse(source)
    evaluator = _Evaluator(evaluation, element_bytes)
    evaluation.value = evaluator.evaluate(node)
    if node.kind == "tuple":  # a shape alone is its compact layout
        evaluation.value = evaluator.evaluate(Node("compact", node.begin, node.end, evaluation.value))
    return evaluation


class _Evaluator:
    def __init__(self, evaluation: Evaluation, element_bytes: int) -> None:
        self.evaluation, self.element_bytes = evaluation, element_bytes

    def evaluate(self, node: Node) -> Any:
        try:
            return getattr(self, f"_{node.kind}")(node)
        except LayoutError as error:
            raise with_location(error, self.evaluation.source, node) from error
        except (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
            layout_error = LayoutError(f"the operands do not fit together: {error}")
            raise with_location(layout_error, self.evaluation.source, node) from error

    def _number(self, node: Node) -> int:
        return node.value

    def _open(self, node: Node) -> None:
        return None

    def _tuple(self, node: Node) -> tuple:
        return tuple(map(self.evaluate, node.parts))

    _tiler = _tuple

    def _compact(self, node: Node) -> Layout:
        return as_layout(node.value)

    def _layout(self, node: Node) -> Layout:
        return Layout(*map(self.evaluate, node.parts))

    def _swizzle(self, node: Node) -> Swizzle:
        if len(node.parts) != 3:
            raise LayoutError(f"a swizzle needs 3 numbers (bits, base, shift), not {len(node.parts)}")
        return Swizzle(*map(self.evaluate, node.parts))

    def _name(self, node: Node) -> Any:
        if node.value in FUNCTIONS:
            raise LayoutError(f"{node.value} needs its arguments in parentheses")
        return node.value if node.value in swizzling.READ_ACCESSES else thread_values(node.value)

    def _chain(self, node: Node) -> Any:
        values = [self.evaluate(part) for part in node.parts]
        if len(values) == 3 and isinstance(values[0], Swizzle) and tuples.is_int(values[1]):
            return ComposedLayout(values[0], values[1], as_layout(values[2]))
        *outer, result = values
        for value in reversed(outer):
            result = self._apply("composition", [_to_layout(value), _to_layout(result)])
        return result

    def _at(self, node: Node) -> Any:
        target, *coordinates = map(self.evaluate, node.parts)
        target = _to_layout(target)
        if isinstance(target, tuple):
            target = as_layout(target)
        if not isinstance(target, Layout | ComposedLayout | Swizzle):
            raise LayoutError(f"{target} is not a layout and takes no coordinate")
        result = target(*coordinates)
        call = f"{target}({','.join(map(format_tuple, coordinates))})"
        self.evaluation.steps.append(Step(call, format_tuple(result)))
        return result

    def _call(self, node: Node) -> Any:
        if node.value.partition(".")[2] and node.value not in FUNCTIONS:  # mma.m16n8k16.bf16.A(0,1)
            return self._at(
                Node("at", node.begin, node.end, parts=(Node("name", node.begin, node.end, node.value), *node.parts))
            )
        if node.value not in FUNCTIONS:
            raise LayoutError(f"unknown operation {node.value!r}", next=f"one of {', '.join(sorted(FUNCTIONS))}")
        arguments = [_to_layout(self.evaluate(part)) for part in node.parts]
        return self._apply(node.value, arguments)

    def _apply(self, name: str, arguments: list[Any]) -> Any:
        fn = FUNCTIONS[name]
        if name in ACCESS_QUERIES and len(arguments) == 1:
            arguments.append(self.element_bytes)
        if name not in (*SHAPE_FUNCTIONS, "make_layout") and isinstance(arguments[0], tuple | int):
            arguments[0] = as_layout(arguments[0])
        try:
            inspect.signature(fn).bind(*arguments)
        except TypeError:
            raise LayoutError(f"{name} accepts {_format_parameters(fn)}, not {len(arguments)} arguments") from None
        try:
            result = fn(*arguments)
        except (TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
            values = ", ".join(map(format_value, arguments))
            raise LayoutError(f"{name} does not accept {values}: it accepts {_format_parameters(fn)}") from error
        explained = name in EXPLANATIONS and None not in arguments
        explanation = tuple(EXPLANATIONS[name](result, *arguments)) if explained else ()
        call = f"{name}({', '.join(map(format_value, arguments))})"
        self.evaluation.steps.append(Step(call, format_value(result), explanation))
        return result


def thread_values(name: str) -> ThreadValues:
    """An operand of an instruction by name: mma.m16n8k16.bf16.A, wgmma.m64n64k16.bf16.C, ldmatrix.x4.

    Raises:
        LayoutError: no such instruction or operand.
    """
    head, _, last = name.rpartition(".")
    which = last if last in ("A", "B", "C", "memory", "registers") else ""
    atom = get_atom(head if which else name)
    if isinstance(atom, MmaAtom):
        if not which:
            raise LayoutError(f"{name} is an instruction: name an operand, {name}.A, {name}.B or {name}.C")
        tv_layout, shape = atom.operand(which)
        return ThreadValues(name, tv_layout, shape)
    assert isinstance(atom, CopyAtom)
    tv_layout = atom.memory if which == "memory" else atom.registers
    rows = layout.size(tv_layout) // 8
    row_major = layout.Layout((8, rows), (rows, 1))  # copy atoms number their matrices along the rows
    return ThreadValues(name, algebra.composition(row_major, tv_layout), (rows, 8))


def format_value(value: Any) -> str:
    """A value in the notation of the expression language."""
    if isinstance(value, tuple):
        return f"({','.join(map(format_value, value))})"
    if isinstance(value, swizzling.SwizzleSearchResult):
        return str(value.layout)
    if isinstance(value, access.BankConflicts):
        return f"{value.ways}-way" if value.ways > 1 else "free"
    if isinstance(value, access.Coalescing):
        return f"{value.sectors} sectors"
    return "_" if value is None else str(value)


def _to_layout(value: Any) -> Any:
    return value.layout if isinstance(value, ThreadValues) else value


def _format_parameters(function: Callable) -> str:
    names = inspect.signature(function).parameters
    return f"({', '.join(str(part).partition(':')[0] for part in names.values())})"
