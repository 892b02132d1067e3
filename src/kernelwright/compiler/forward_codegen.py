"""The lines of a forward function: calls of regions, and torch's operators for what no region holds."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.capture.calls import list_outputs, map_calls_to_values, source_call_name
from kernelwright.compiler.capture.capture import CapturedProgram, Source
from kernelwright.compiler.kernel_source import wrap_call
from kernelwright.compiler.regions.nodes import READ_AS_FP32, node_arg
from kernelwright.compiler.regions.region import Region
from kernelwright.core.errors import ProblemError

MAX_LITERAL_ELEMENTS = 64
"""A constant tensor of more elements is not written out as text."""


class PlannedRegion(NamedTuple):
    """A region that runs as a kernel, with the nodes that it computes."""

    region: Region
    nodes: tuple[fx.Node, ...]


@dataclass(frozen=True, eq=False)
class Statement:
    """Nodes that one line computes: a region's, those of one call of the program, or a single one, which can be the
    same as another."""

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    region: Region | None = None
    call: fx.Node | None = None
    stored_outputs: tuple[fx.Node, ...] = ()
    alias_of: fx.Node | None = None

    @property
    def outputs(self) -> tuple[fx.Node, ...]:
        """The nodes whose value others can have from it."""
        return self.stored_outputs if self.region else self.nodes


class ForwardCodegen:
    """Python lines for one captured call.

    Args:
        calls: how the kernels of some regions are called.
        inplace_regions: the regions whose kernels can write into what they are given.

    Attributes:
        in_place: for each such region its results that are written right into the argument or buffer that takes them:
            every element is read, if at all, by whoever writes it, and by nobody else.
    """

    def __init__(
        self,
        captured: CapturedProgram,
        parts: Sequence[PlannedRegion],
        calls: Mapping[str, str] = MappingProxyType({}),
        inplace_regions: Set[str] = frozenset(),
    ) -> None:
        self._captured, self._regions, self._calls = captured, parts, calls
        self._names: dict[fx.Node, str] = {}
        self._value_of = map_calls_to_values(captured)
        self._by_name = {node.name: node for node in captured.graph.nodes}
        (output,) = (node for node in captured.graph.nodes if node.op == "output")
        self._outputs = list_outputs(captured)
        self.statements = _schedule(self._build_statements(), list(captured.graph.nodes), output)
        self.in_place = self._find_in_place_outputs(inplace_regions)

    def inputs(self, owner: str) -> dict[str, fx.Node]:
        """What the program is given, as it is written: arguments by name, parameters and buffers by `owner`."""
        return {
            _source_expr(node, source, owner): node
            for node, source in self._captured.sources.items()
            if source.kind != "constant" and node.users and isinstance(node.meta.get("val"), torch.Tensor)
        }

    def lines(self, owner: str) -> list[str]:
        """The body, from named argument tensors to the return; `owner` is what holds parameters (`self`)."""
        self._names = {node: _source_expr(node, source, owner) for node, source in self._captured.sources.items()}
        last_use = _last_uses(self.statements, self._captured.graph)
        lines: list[str] = []
        for unit in self.statements:
            lines.append(wrap_call(self._line(unit)))
            if dead := [self._names[n] for n in last_use.get(unit, ()) if n in self._names]:
                lines.append(f"del {', '.join(dead)}")
        return [*lines, *self._result_lines()]

    # ---- what is written into arguments

    def _find_in_place_outputs(self, may_write: Set[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        apart = [given.value for given in self._outputs if not given.is_returned or given.mutated_input is None]
        for value, target, returned in self._outputs:
            unit = next((unit for unit in self.statements if value in unit.stored_outputs), None)
            if target is None or returned or unit is None or unit.region is None or unit.region.name not in may_write:
                continue
            read_by_others = any(target in other.inputs for other in self.statements if other is not unit)
            if apart.count(value) == 1 and not read_by_others and _is_elementwise_update(unit.region, value, target):
                found.setdefault(unit.region.name, {})[value.name] = target.name
        return found

    # ---- units

    def _build_statements(self) -> list[Statement]:
        held = {node for part in self._regions for node in part.nodes}
        written = {self._by_name[name] for part in self._regions for name in part.region.writes}
        units = [
            Statement(
                part.nodes, self._nodes(part.region.reads), part.region, stored_outputs=self._nodes(part.region.writes)
            )
            for part in self._regions
        ]
        by_call: dict[str, list[fx.Node]] = {}
        for node in self._captured.graph.nodes:
            if node.op == "call_function" and node.users:
                by_call.setdefault(source_call_name(node), []).append(node)
        originals = {node.name: node for node in self._captured.exported.graph.nodes}
        for name, nodes in by_call.items():
            call = originals.get(name)
            if call is not None and len(nodes) > 1 and not held & set(nodes) and self._can_call_original(call, nodes):
                units.append(Statement(tuple(nodes), _inputs_of(nodes), call=call))
            else:
                units += [_single_node_statement(node, written) for node in nodes if node not in written]
        return units

    def _nodes(self, names: Sequence[str]) -> tuple[fx.Node, ...]:
        return tuple(self._by_name[name] for name in names)

    def _can_call_original(self, call: fx.Node, nodes: Sequence[fx.Node]) -> bool:
        """Whether the program's own call gives just the value that others need of these nodes."""
        outside = [n for n in nodes if any(user not in nodes for user in n.users)]
        known = self._value_of.keys() | {n for n in self._captured.exported.graph.nodes if n.op == "placeholder"}
        return (
            isinstance(call.target, torch._ops.OpOverload)
            and not call.target._schema.is_mutable
            and len(outside) == 1
            and self._value_of.get(call) is outside[0]
            and set(call.all_input_nodes) <= known
            and not any(READ_AS_FP32 in node.meta for node in _inputs_of(nodes))  # the call itself takes another node
        )

    # ---- lines

    def _line(self, unit: Statement) -> str:
        if unit.region:
            return self._region_line(unit.region)
        node = unit.nodes[-1]
        if unit.call is not None:
            node = self._value_of[unit.call]
            text = self._call_expr(unit.call)
        elif unit.alias_of is not None:
            text = self._names[unit.alias_of]
        else:
            text = self._call_expr(node)
        self._names[node] = _identifier(node.name)
        return f"{self._names[node]} = {text}"

    def _region_line(self, region: Region) -> str:
        inputs, outputs = region.reads, region.writes
        self._names |= {self._by_name[name]: _identifier(name) for name in outputs}
        given = ", ".join(self._names[self._by_name[name]] for name in inputs)
        called = self._calls.get(region.name, "{name}({given})").format(name=region.name, given=given)
        return f"{', '.join(_identifier(name) for name in outputs)} = {called}"

    def _call_expr(self, node: fx.Node) -> str:
        if not isinstance(node.target, torch._ops.OpOverload):
            source, place = node.args
            return f"{self._value_expr(source)}[{place}]"
        given = [self._value_expr(arg) for arg in node.args]
        given += [f"{name}={self._value_expr(value)}" for name, value in node.kwargs.items()]
        return f"torch.ops.{node.target}({', '.join(given)})"

    def _value_expr(self, value: Any) -> str:
        match value:
            case fx.Node():
                return self._names[self._value_of.get(value, value) if value not in self._names else value]
            case list() | tuple():
                inside = ", ".join(map(self._value_expr, value))
                return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
            case float() if value != value or abs(value) == float("inf"):
                return f'float("{value}")'
            case torch.device():
                return f'torch.device("{value}")'
        return repr(value)

    def _result_lines(self) -> list[str]:
        lines, returned, changed = [], [], []
        in_place = {name for names in self.in_place.values() for name in names}
        for value, argument, is_returned in self._outputs:
            text = self._value_expr(value)
            if is_returned:
                returned.append(self._names[argument] if argument else text)
            elif isinstance(value, fx.Node) and value.name in in_place:
                changed.append(self._value_expr(argument))
            elif argument:
                detached = ".detach()" * (self._captured.sources[argument].kind == "buffer")
                lines.append(f"{self._names[argument]}.copy_({text}{detached})")
        if changed:
            lines.append(wrap_call(f"torch.autograd.graph.increment_version([{', '.join(changed)}])"))
        return [*lines, f"return {_tree_expr(self._captured.out_spec, iter(returned))}"]


def _is_elementwise_update(region: Region, value: fx.Node, target: fx.Node) -> bool:
    """Whether a region without rows reads a target only where it stores the value that the target takes."""
    stores = [store for store in region.stores if store.buffer == value.name]
    loads = [load for load in region.loads if load.buffer == target.name]
    made, there = value.meta["val"], target.meta["val"]
    alike = (made.shape, made.stride(), made.dtype) == (there.shape, there.stride(), there.dtype)
    same = all((load.strides, load.offset) == (stores[0].strides, 0) for load in loads)
    return alike and bool(loads) and same and not region.row and len(stores) == 1


def _single_node_statement(node: fx.Node, written: Set[fx.Node]) -> Statement:
    """A node by itself; what is cast back from an FP32 copy that no region wrote is what was copied."""
    if READ_AS_FP32 not in node.meta or node.args[0] in written:
        return Statement((node,), _inputs_of([node]))
    source = node_arg(node_arg(node, 0), 0)
    return Statement((node,), (source,), alias_of=source)


def _inputs_of(nodes: Sequence[fx.Node]) -> tuple[fx.Node, ...]:
    return tuple(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in nodes))


def _schedule(units: list[Statement], nodes: list[fx.Node], output: fx.Node) -> list[Statement]:
    """What the output needs, each after what it needs itself, otherwise as in the program."""
    of = {node: unit for unit in units for node in unit.outputs}
    place = {node: at for at, node in enumerate(nodes)}
    done: dict[Statement, None] = {}

    def visit(unit: Statement, into: dict[Statement, None]) -> None:
        if unit not in into:
            for needed in sorted((n for n in unit.inputs if n in of), key=place.__getitem__):
                visit(of[needed], into)
            into[unit] = None

    needed: dict[Statement, None] = {}
    for node in output.all_input_nodes:
        if node in of:
            visit(of[node], needed)
    for unit in sorted(needed, key=lambda unit: place[unit.nodes[-1]]):  # random numbers stay in their order
        visit(unit, done)
    return list(done)


def _last_uses(units: Sequence[Statement], graph: fx.Graph) -> dict[Statement, list[fx.Node]]:
    """For each unit the values that nothing after it needs, in order; what the program returns is needed to the end."""
    last: dict[fx.Node, Statement] = {}
    kept = {n for node in graph.nodes if node.op in ("output", "placeholder") for n in (node, *node.all_input_nodes)}
    for unit in units:
        last |= {needed: unit for needed in unit.inputs if needed not in kept}
    found: dict[Statement, list[fx.Node]] = {}
    for node, unit in last.items():
        found.setdefault(unit, []).append(node)
    return found


def attribute_expr(owner: str, path: str) -> str:
    """`self.norm.weight`; numbered modules by getattr."""
    text = owner
    for name in path.split("."):
        text = f"{text}.{name}" if name.isidentifier() else f'getattr({text}, "{name}")'
    return text


def _source_expr(node: fx.Node, source: Source, owner: str) -> str:
    match source.kind:
        case "parameter" | "buffer":
            return attribute_expr(owner, source.name)
        case "argument":
            return _identifier(node.name)
    value = source.value
    if not isinstance(value, torch.Tensor):
        raise ProblemError(f"{node.name} is no tensor")
    if value.numel() > MAX_LITERAL_ELEMENTS and node.users:
        raise ProblemError(f"it uses a tensor of {value.numel():,} elements that was made outside of it")
    return f"torch.tensor({value.tolist()}, dtype={value.dtype}, device={str(value.device)!r})"


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in ("torch", "self") else name


def _tree_expr(spec: Any, leaves: Iterator[str]) -> str:
    """The result as it is written: tuples, lists and dicts around values."""
    if spec.is_leaf():
        return next(leaves)
    children = [_tree_expr(child, leaves) for child in spec.children()]
    if spec.type is tuple:
        return f"({', '.join(children)}{',' * (len(children) == 1)})"
    if spec.type is list:
        return f"[{', '.join(children)}]"
    if spec.type is not None and spec.type.__module__ == "torch.return_types":
        return f"torch.return_types.{spec.type.__name__}(({', '.join(children)}))"
    if spec.type is dict:
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(spec.context, children, strict=True)) + "}"
    raise ProblemError(f"it returns a {getattr(spec.type, '__name__', spec.type)}")
