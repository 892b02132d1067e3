"""Code generation of a forward function: calls of region kernels, and torch operators for the rest of the graph."""

from __future__ import annotations

import keyword
from collections import OrderedDict, namedtuple
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, is_dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.calls import list_outputs, map_calls_to_values
from kernelwright.compiler.capture.capture import CapturedProgram, Source
from kernelwright.compiler.capture.origins import source_call_name
from kernelwright.compiler.kernel_source import wrap_call
from kernelwright.compiler.partial_updates import SLICE_UPDATE, find_partial_updates, in_place_call
from kernelwright.compiler.regions.contraction import AnyRegion
from kernelwright.compiler.regions.nodes import READ_AS_FP32, node_arg
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.regions.region import Region
from kernelwright.core.errors import ProblemError

MAX_LITERAL_ELEMENTS = 64
"""Larger constant tensors are not written as literals."""


class PlannedRegion(NamedTuple):
    """A region and the graph nodes that it computes."""

    region: AnyRegion
    nodes: tuple[fx.Node, ...]


@dataclass(frozen=True, eq=False)
class Statement:
    """One generated line: a region's kernel, one call of the original program, a single operator, or an alias.

    Attributes:
        nodes: the graph nodes that it computes.
        inputs: the nodes that it reads.
        region: the region, if it is one.
        call: the call of the original program, if it is one.
        stored_outputs: the nodes that a region stores.
        alias_of: the node whose value it is, if it is an alias.
    """

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    region: AnyRegion | None = None
    call: fx.Node | None = None
    stored_outputs: tuple[fx.Node, ...] = ()
    alias_of: fx.Node | None = None

    @property
    def outputs(self) -> tuple[fx.Node, ...]:
        """The nodes whose values are available after it."""
        return self.stored_outputs if self.region else self.nodes


class ForwardCodegen:
    """Generates the body of `forward` for one captured call.

    Args:
        calls: by region name, a call template with `{name}` and `{given}` (the arguments).
        inplace_regions: the regions whose kernels can write into their inputs.
        updates_in_place: whether torch's operators may write into arguments and buffers before the end.

    Attributes:
        in_place: for each such region its outputs that are written directly into the argument or buffer that they
            update: each element is read at most by the iteration that writes it, and by no other statement.
    """

    def __init__(
        self,
        captured: CapturedProgram,
        parts: Sequence[PlannedRegion],
        calls: Mapping[str, str] = MappingProxyType({}),
        inplace_regions: Set[str] = frozenset(),
        updates_in_place: bool = False,
    ) -> None:
        self._captured, self._regions, self._calls = captured, parts, calls
        self._names: dict[fx.Node, str] = {}
        self._value_of = map_calls_to_values(captured)
        self._by_name = {node.name: node for node in captured.graph.nodes}
        (output,) = (node for node in captured.graph.nodes if node.op == "output")
        self._outputs = list_outputs(captured)
        self._read_by_regions = {self._by_name[name] for part in parts for name in part.region.reads}
        self.statements = _schedule(self._build_statements(), list(captured.graph.nodes), output)
        self.in_place = self._find_in_place_outputs(inplace_regions)
        self._updates = find_partial_updates(self.statements, self._outputs) if updates_in_place else {}

    def inputs(self, owner: str) -> dict[str, fx.Node]:
        """The program's input tensors by their expressions: argument names, parameters and buffers of `owner`."""
        return {
            _source_expr(node, source, owner): node
            for node, source in self._captured.sources.items()
            if source.kind != "constant" and node.users and isinstance(node.meta.get("val"), torch.Tensor)
        }

    def lines(self, owner: str, result_types: Mapping[type, str] = MappingProxyType({})) -> list[str]:
        """Generate the body, from the named argument tensors to the return statement.

        Args:
            owner: expression of the module that has the parameters, `self`.
            result_types: names of the named tuples and dataclasses that the program can return.
        """
        self._names = {node: _source_expr(node, source, owner) for node, source in self._captured.sources.items()}
        last_use = _last_uses(self.statements, self._captured.graph)
        lines: list[str] = []
        for statement in self.statements:
            lines.append(wrap_call(self._line(statement)))
            dead = [n for n in last_use.get(statement, ()) if n in self._names and n not in self._updates]
            if dead := [self._names[n] for n in dead]:
                lines.append(f"del {', '.join(dead)}")
        return [*lines, *self._result_lines(result_types)]

    # ---- in-place outputs

    def _find_in_place_outputs(self, inplace_regions: Set[str]) -> dict[str, dict[str, str]]:
        in_place: dict[str, dict[str, str]] = {}
        non_aliases = [one.value for one in self._outputs if not one.is_returned or one.mutated_input is None]
        for value, target, returned in self._outputs:
            writer = next((one for one in self.statements if value in one.stored_outputs), None)
            if target is None or returned or writer is None:
                continue
            # a contraction may compute elements again, from the values that were there before
            if not isinstance(writer.region, Region) or writer.region.name not in inplace_regions:
                continue
            read_by_others = any(target in other.inputs for other in self.statements if other is not writer)
            is_only_use = non_aliases.count(value) == 1 and not read_by_others
            if is_only_use and _is_elementwise_update(writer.region, value, target):
                in_place.setdefault(writer.region.name, {})[value.name] = target.name
        return in_place

    # ---- statements

    def _build_statements(self) -> list[Statement]:
        in_regions = {node for part in self._regions for node in part.nodes}
        written = {self._by_name[name] for part in self._regions for name in part.region.writes}
        statements = [
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
            is_whole_call = call is not None and len(nodes) > 1 and not in_regions & set(nodes)
            if call is not None and is_whole_call and self._can_call_original(call, nodes):
                statements.append(Statement(tuple(nodes), _inputs_of(nodes), call=call))
            else:
                statements += [_single_node_statement(node, written) for node in nodes if node not in written]
        return statements

    def _nodes(self, names: Sequence[str]) -> tuple[fx.Node, ...]:
        return tuple(self._by_name[name] for name in names)

    def _can_call_original(self, call: fx.Node, nodes: Sequence[fx.Node]) -> bool:
        """Whether the original call computes the only value of these nodes that is used outside them."""
        outside = [n for n in nodes if n in self._read_by_regions or any(user not in nodes for user in n.users)]
        known = self._value_of.keys() | {n for n in self._captured.exported.graph.nodes if n.op == "placeholder"}
        inputs = set(_inputs_of(nodes))
        read = [self._value_of[one] for one in call.all_input_nodes if one in self._value_of]
        return (
            isinstance(call.target, torch._ops.OpOverload)
            and not call.target._schema.is_mutable
            and len(outside) == 1
            and self._value_of.get(call) is outside[0]
            and set(call.all_input_nodes) <= known
            and all(one in inputs or one.op == "placeholder" for one in read)  # else a rewrite read something else
            and not any(READ_AS_FP32 in node.meta for node in inputs)  # the call reads the uncast node
        )

    # ---- lines

    def _line(self, statement: Statement) -> str:
        if statement.region:
            return self._region_line(statement.region)
        node = statement.nodes[-1]
        if node in self._updates:
            self._names[node] = self._names[self._updates[node]]
            return self._update_expr(node)
        if statement.call is not None:
            node = self._value_of[statement.call]
            text = self._call_expr(statement.call)
        elif statement.alias_of is not None:
            text = self._names[statement.alias_of]
        else:
            text = self._call_expr(node)
        self._names[node] = _identifier(node.name)
        return f"{self._names[node]} = {text}"

    def _region_line(self, region: AnyRegion) -> str:
        inputs, outputs = region.reads, region.writes
        self._names |= {self._by_name[name]: _identifier(name) for name in outputs}
        arguments = ", ".join(self._names[self._by_name[name]] for name in inputs)
        call = self._calls.get(region.name, "{name}({given})").format(name=region.name, given=arguments)
        return f"{', '.join(_identifier(name) for name in outputs)} = {call}"

    def _call_expr(self, node: fx.Node) -> str:
        if not isinstance(node.target, torch._ops.OpOverload):
            source, index = node.args
            return f"{self._value_expr(source)}[{index}]"
        arguments = [self._value_expr(arg) for arg in node.args]
        arguments += [f"{name}={self._value_expr(value)}" for name, value in node.kwargs.items()]
        return f"torch.ops.{node.target}({', '.join(arguments)})"

    def _update_expr(self, node: fx.Node) -> str:
        """The call that updates a part of a tensor in place."""
        target, args = in_place_call(node)
        arguments = [self._names[node], *map(self._value_expr, args)]
        arguments += [f"{name}={self._value_expr(value)}" for name, value in node.kwargs.items()]
        call = f"torch.ops.{target}({', '.join(arguments)})"
        return f"{call}.copy_({self._value_expr(node.args[1])})" if op_name(node.target) == SLICE_UPDATE else call

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

    def _result_lines(self, types: Mapping[type, str]) -> list[str]:
        lines, returned, mutated = [], [], []
        in_place = {name for names in self.in_place.values() for name in names}
        for value, argument, is_returned in self._outputs:
            text = self._value_expr(value)
            if is_returned:
                returned.append(self._names[argument] if argument else text)
            elif isinstance(value, fx.Node) and value.name in in_place:
                mutated.append(self._value_expr(argument))
            elif argument and value not in self._updates:
                detached = ".detach()" * (self._captured.sources[argument].kind == "buffer")
                lines.append(f"{self._names[argument]}.copy_({text}{detached})")
        if mutated:
            lines.append(wrap_call(f"torch.autograd.graph.increment_version([{', '.join(mutated)}])"))
        return [*lines, f"return {_result_expr(self._captured.out_spec, returned, types)}"]


def _is_elementwise_update(region: AnyRegion, value: fx.Node, target: fx.Node) -> bool:
    """Whether a region without rows reads each element of `target` only where it stores the element's new value."""
    stores = [store for store in region.stores if store.buffer == value.name]
    loads = [load for load in region.loads if load.buffer == target.name]
    new, old = value.meta["val"], target.meta["val"]
    same_layout = (new.shape, new.stride(), new.dtype) == (old.shape, old.stride(), old.dtype)
    same_index = all((load.strides, load.offset) == (stores[0].strides, 0) for load in loads)
    return same_layout and bool(loads) and same_index and not region.row and len(stores) == 1


def _single_node_statement(node: fx.Node, written: Set[fx.Node]) -> Statement:
    """A single operator; a cast back from an FP32 copy that no region wrote is an alias of the value before both."""
    if READ_AS_FP32 not in node.meta or node.args[0] in written:
        return Statement((node,), _inputs_of([node]))
    source = node_arg(node_arg(node, 0), 0)
    return Statement((node,), (source,), alias_of=source)


def _inputs_of(nodes: Sequence[fx.Node]) -> tuple[fx.Node, ...]:
    return tuple(dict.fromkeys(n for node in nodes for n in node.all_input_nodes if n not in nodes))


def _schedule(statements: list[Statement], nodes: list[fx.Node], output: fx.Node) -> list[Statement]:
    """The statements that the output depends on, in topological order and otherwise in program order."""
    writer = {node: statement for statement in statements for node in statement.outputs}
    order = {node: index for index, node in enumerate(nodes)}
    scheduled: dict[Statement, None] = {}

    def visit(statement: Statement, visited: dict[Statement, None]) -> None:
        if statement not in visited:
            for source in sorted((n for n in statement.inputs if n in writer), key=order.__getitem__):
                visit(writer[source], visited)
            visited[statement] = None

    needed: dict[Statement, None] = {}
    for node in output.all_input_nodes:
        if node in writer:
            visit(writer[node], needed)
    for statement in sorted(needed, key=lambda one: order[one.nodes[-1]]):  # random operators stay in program order
        visit(statement, scheduled)
    return list(scheduled)


def _last_uses(statements: Sequence[Statement], graph: fx.Graph) -> dict[Statement, list[fx.Node]]:
    """For each statement the values that are dead after it; inputs and results of the program stay live."""
    last: dict[fx.Node, Statement] = {}
    live = {n for node in graph.nodes if node.op in ("output", "placeholder") for n in (node, *node.all_input_nodes)}
    for statement in statements:
        last |= {source: statement for source in statement.inputs if source not in live}
    dead: dict[Statement, list[fx.Node]] = {}
    for node, statement in last.items():
        dead.setdefault(statement, []).append(node)
    return dead


def attribute_expr(owner: str, path: str) -> str:
    """The expression of a module's attribute: `self.norm.weight`, with getattr for numbered modules."""
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
        raise ProblemError(f"{node.name} is not a tensor")
    if value.numel() > MAX_LITERAL_ELEMENTS and node.users:
        raise ProblemError(f"it captures a constant tensor of {value.numel():,} elements")
    return f"torch.tensor({value.tolist()}, dtype={value.dtype}, device={str(value.device)!r})"


def require_writable_constants(captured: CapturedProgram) -> None:
    """Check that the constants of a program can be written as literals.

    Raises:
        ProblemError: one cannot.
    """
    for node, source in captured.sources.items():
        if source.kind == "constant":
            _source_expr(node, source, "self")


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) or name in ("torch", "self") else name


def _result_expr(spec: Any, values: list[str], types: Mapping[type, str]) -> str:
    """The expression of the program's result; pytree puts together what only it can construct.

    Raises:
        ProblemError: pytree cannot write one of its types.
    """
    if _is_writable(spec, types):
        return _tree_expr(spec, iter(values), types)
    try:
        text = pytree.treespec_dumps(spec)
    except (NotImplementedError, TypeError) as error:
        raise ProblemError(f"its result type is not supported: {error}") from error
    module = "torch.utils._pytree"
    return f"{module}.tree_unflatten([{', '.join(values)}], {module}.treespec_loads({text!r}))"


def _is_writable(spec: Any, types: Mapping[type, str]) -> bool:
    """Whether a tree has tuples, lists, dicts, torch's named tuples and types with known names and fields alone."""
    own = spec.is_leaf() or spec.type in (tuple, list, dict) or spec.type.__module__ == "torch.return_types"
    named = own or (
        (spec.context if spec.type is namedtuple else spec.type) in types and _field_names(spec) is not None
    )
    return named and all(_is_writable(child, types) for child in spec.children())


def _tree_expr(spec: Any, leaves: Iterator[str], types: Mapping[type, str]) -> str:
    """The expression of the program's result: nested tuples, lists, dicts, named tuples and dataclasses of values."""
    if spec.is_leaf():
        return next(leaves)
    children = [_tree_expr(child, leaves, types) for child in spec.children()]
    if spec.type is tuple:
        return f"({', '.join(children)}{',' * (len(children) == 1)})"
    if spec.type is list:
        return f"[{', '.join(children)}]"
    if spec.type is dict:
        return "{" + ", ".join(f"{key!r}: {child}" for key, child in zip(spec.context, children, strict=True)) + "}"
    if spec.type is not None and spec.type.__module__ == "torch.return_types":
        return f"torch.return_types.{spec.type.__name__}(({', '.join(children)}))"
    result_type: Any = spec.context if spec.type is namedtuple else spec.type
    names = _field_names(spec)
    assert names is not None, "see _is_writable"
    named = list(zip(names, [*children, *["None"] * len(names)], strict=False))
    if spec.type is OrderedDict:
        return f"{types[result_type]}([{', '.join(f'({name!r}, {child})' for name, child in named)}])"
    return f"{types[result_type]}({', '.join(f'{name}={child}' for name, child in named)})"


def _field_names(spec: Any) -> Sequence[str] | None:
    """The fields of a named tuple, dataclass or OrderedDict: those of its leaves, then those that are None."""
    match spec.context:
        case type() if spec.type is namedtuple:
            return spec.context._fields
        case [[*given], [*none]] if is_dataclass(spec.type):  # as torch registers dataclasses
            return [*given, *none]
        case [*keys] if spec.type is OrderedDict or (is_dataclass(spec.type) and all(isinstance(k, str) for k in keys)):
            return keys
    return None
