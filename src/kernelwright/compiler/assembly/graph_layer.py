"""The layer that runs the graphs between two breaks of a program with generated kernels; Dynamo finds them there."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from kernelwright.compiler.assembly.output_file import LayerBelow, indent
from kernelwright.compiler.backends import backend_for
from kernelwright.compiler.capture import graph_signature
from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.guards import DISPATCH_CHECKS, emit_no_alias_check, emit_precision_checks
from kernelwright.compiler.kernel_source import RegionKernel, wrap_call
from kernelwright.problems import Problem

IMPORTS = """import hashlib
import sys
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves
"""
BACKEND_TEMPLATE = '''
def run_graph(module, inputs):
    """The backend of torch.compile: the function generated for a graph, and a graph that is none of
    these as Dynamo captured it."""
    generated = GRAPHS.get(sign_graph(module, inputs))
    return (lambda *tensors: generated(module.forward, *tensors)) if generated else module.forward


def runs_as_written(module, *given):
    """Whether a call is traced, transformed or differentiated, so that torch has to see the program's own operators."""
    if torch.compiler.is_compiling() or is_intercepted() or is_transformed():
        return True
    values = (*module.parameters(), *tree_leaves(given)) if torch.is_grad_enabled() else ()
    return any(isinstance(one, torch.Tensor) and one.requires_grad for one in values)


def can_run_kernels(*tensors):
    """Whether nothing records, transforms or differentiates the operators of this call."""
    if {missing_kernels_check}is_intercepted() or is_transformed():
        return False
    return not (torch.is_grad_enabled() and any([one.requires_grad for one in tensors]))
'''


class GeneratedGraph(NamedTuple):
    """A graph whose regions run as kernels.

    Attributes:
        regions: those that run as kernels; torch runs its other operators.
    """

    signature: str
    captured: CapturedProgram
    regions: Sequence[PlannedRegion]


@dataclass(frozen=True)
class GraphLayer:
    """A program that torch.compile breaks into graphs, some of which are generated.

    Attributes:
        kernels: one for each region that is not a repetition.
        same_as: by the name of a region that repeats another, the other's name.
        opaque: operators that Dynamo must not trace: `namespace.name`.
    """

    graphs: Sequence[GeneratedGraph]
    kernels: Sequence[RegionKernel]
    device: str
    same_as: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    opaque: Sequence[str] = ()
    class_name: str = "Graphs"

    @property
    def imports(self) -> str:
        """Those of the kernels' language and of the signatures."""
        return (backend_for(self.device).imports if self.kernels else "") + IMPORTS

    def sections(self, problem: Problem) -> list[tuple[str, str]]:
        """The kernels, a function for each graph, and the backend of torch.compile that selects it."""
        backend, in_place = backend_for(self.device), {}
        for graph in self.graphs:
            in_place |= self._codegen(graph).in_place
        kernels = [one._replace(in_place=in_place.get(one.region.name, {})) for one in self.kernels]
        return [
            *([("kernels", backend.emit(kernels))] if kernels else []),
            ("graphs", "\n\n".join(map(self._emit_function, range(len(self.graphs))))),
            ("backend of torch.compile", self._emit_backend()),
        ]

    def _emit_backend(self) -> str:
        """The table of the graphs and the functions that look a graph up in it."""
        names = [f'    "{graph.signature}": graph_{number},\n' for number, graph in enumerate(self.graphs)]
        table = f'GRAPHS = {{\n{"".join(names)}}}\n"""The generated functions by the signatures of their graphs."""\n'
        missing_kernels = backend_for(self.device).missing_kernels_check(self.kernels)
        functions = [inspect.getsource(one) for one in (graph_signature.sign_graph, graph_signature.target_name)]
        return "\n\n".join(
            [
                table + "".join(f"torch._dynamo.disallow_in_graph(torch.ops.{name}.default)\n" for name in self.opaque),
                BACKEND_TEMPLATE.format(missing_kernels_check=missing_kernels).strip() + "\n",
                DISPATCH_CHECKS.strip() + "\n",
                *functions,
            ]
        )

    def _codegen(self, graph: GeneratedGraph) -> ForwardCodegen:
        own = {one.region.name for one in self.kernels if not one.torch_source}
        once = own - set(self.same_as) - set(self.same_as.values())
        names = (part.region.name for part in graph.regions)
        calls = {name: f"{self.same_as.get(name, name)}({{given}})" for name in names}
        return ForwardCodegen(graph.captured, graph.regions, calls, once, updates_in_place=True)

    def _emit_function(self, number: int) -> str:
        """The function of a graph: it calls the original one where the kernels do not apply."""
        graph = self.graphs[number]
        sources = {int(one.name): node for node, one in graph.captured.sources.items() if one.kind == "argument"}
        names = [sources[index].name for index in sorted(sources)]
        conditions = [
            f"can_run_kernels({', '.join(names)})",
            *emit_precision_checks(one.region for one in graph.regions),
        ]
        if any(kind != "output" for kind, _ in graph.captured.results):
            conditions.append(emit_no_alias_check(names))
        body = [
            f'"""Graph {number + 1} of the program."""',
            f"{wrap_call('if not (' + ' and '.join(conditions) + '):')}\n    return original({', '.join(names)})",
            *self._codegen(graph).lines(""),
        ]
        head = wrap_call(f"def graph_{number}({', '.join(['original', *names])}):")
        return "\n".join([head, *map(indent, body)]) + "\n"

    def body(self, below: LayerBelow) -> str:
        """`forward`, compiled by torch.compile with the backend of the file."""
        rename, (parameters, arguments) = below.rename, below.signature()
        compiled = below.name if below.is_function else f"{below.name}.forward"
        compiled = f"torch.compile({compiled}, dynamic=False, backend={rename('run_graph')})"
        body = [
            f"if {rename('runs_as_written')}({', '.join(['self', *below.argument_names()])}):",
            f"    return {below.call(arguments)}",
            wrap_call(f"return self.__compiled({arguments})"),
        ]
        doc = f'"""{below.name}, whose graphs run with generated kernels; what is between them runs as it is."""'
        attribute = f"__compiled = {f'staticmethod({compiled})' if below.is_function else compiled}"
        return "\n".join([doc, "", attribute, "", wrap_call(f"def forward({parameters}):"), *map(indent, body)])
