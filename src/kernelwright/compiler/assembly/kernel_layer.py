"""The layer that runs regions of the program as generated kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType

from torch import fx

from kernelwright.compiler.assembly.output_file import LayerBelow, indent, plain_signature, result_types
from kernelwright.compiler.backends import Backend, backend_for
from kernelwright.compiler.capture.capture import CapturedProgram
from kernelwright.compiler.differentiable import AUTOGRAD_CALL_TEMPLATE, RegionGradient, emit_autograd_functions
from kernelwright.compiler.forward_codegen import ForwardCodegen, PlannedRegion
from kernelwright.compiler.guards import (
    emit_argument_checks,
    emit_guard,
    emit_mode_check,
    emit_no_alias_check,
    emit_precision_checks,
)
from kernelwright.compiler.identifiers import Renamer
from kernelwright.compiler.kernel_source import RegionKernel, wrap_call
from kernelwright.problems import Problem

CALL_TEMPLATE = "{name}({given})"


@dataclass(frozen=True)
class KernelLayer:
    """A captured program whose regions run as kernels.

    Attributes:
        regions: the regions that run as kernels; torch runs the other operators of the graph.
        kernels: one for each region that is not a repetition, then those of the gradients.
        same_as: by the name of a region that repeats another, the other's name.
        gradients: the backward pass of each region, for a program that is trained.
        trainable: the nodes that require a gradient at capture.
    """

    captured: CapturedProgram
    regions: Sequence[PlannedRegion]
    kernels: Sequence[RegionKernel]
    device: str
    same_as: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    gradients: Sequence[RegionGradient] = ()
    trainable: Set[fx.Node] = frozenset()
    class_name: str = "Kernels"

    @property
    def imports(self) -> str:
        """Those of the kernels' language."""
        return self._backend.imports if self.kernels else ""

    @property
    def _backend(self) -> Backend:
        return backend_for(self.device)

    def sections(self, problem: Problem) -> list[tuple[str, str]]:
        """The kernels, their gradients, and the checks of their inputs."""
        forward = self._codegen({})
        kernels = [one._replace(in_place=forward.in_place.get(one.region.name, {})) for one in self.kernels]
        sections = [("kernels", self._backend.emit(kernels))] if kernels else []
        if self.gradients:
            sections.append(("gradients", emit_autograd_functions(self.gradients)))
        require_grad = self.trainable & set(forward.inputs("self").values()) if self.gradients else set()
        missing_kernels = self._backend.missing_kernels_check(self.kernels)
        guard = emit_guard(forward, self.device, require_grad, bool(self.gradients), missing_kernels)
        return [*sections, ("guards", guard)]

    def _codegen(self, calls: Mapping[str, str]) -> ForwardCodegen:
        own = {one.region.name for one in self.kernels if not one.torch_source} - self._trained_regions
        once = own - set(self.same_as) - set(self.same_as.values())
        return ForwardCodegen(self.captured, self.regions, calls, once, updates_in_place=not self.gradients)

    @property
    def _trained_regions(self) -> set[str]:
        return {gradient.region.name for gradient in self.gradients}

    def _calls(self, rename: Renamer) -> dict[str, str]:
        """By region, the template of its call."""
        calls = {}
        for name in (part.region.name for part in self.regions):
            template = AUTOGRAD_CALL_TEMPLATE if name in self._trained_regions else CALL_TEMPLATE
            calls[name] = rename(template.replace("{name}", self.same_as.get(name, name)))
        return calls

    def body(self, below: LayerBelow) -> str:
        """`forward`: the checks of its inputs, then kernels and torch operators."""
        problem, forward = below.problem, self._codegen(self._calls(below.rename))
        parameters, arguments = below.signature()
        shadowed = below.is_function and below.name in {node.name for node in self.captured.graph.nodes}
        original = f"self.original({arguments})" if shadowed else below.call(arguments)
        unpacked, conditions = emit_argument_checks(problem, self.captured, plain_signature(problem))
        if self.captured.training:
            conditions.insert(0, emit_mode_check(self.captured.training))
        conditions += emit_precision_checks(part.region for part in self.regions)
        tensors = list(forward.inputs("self"))
        tensor_checks = [f"{below.rename('inputs_match')}({', '.join(tensors)})"]
        if any(kind != "output" for kind, _ in self.captured.results):
            tensor_checks.append(emit_no_alias_check(tensors))
        guards = [conditions, tensor_checks] if unpacked else [[*conditions, *tensor_checks]]
        body = [
            *(_emit_early_return(" and ".join(guard), f"return {original}") for guard in guards[:-1] if guard),
            *unpacked,
            _emit_early_return(" and ".join(guards[-1]), f"return {original}"),
            *forward.lines("self", result_types(problem)),
        ]
        name = below.name
        what = "with generated kernels" if self.kernels else "rewritten,"
        doc = f'"""{name} {what} for the verified input layouts; otherwise the original {name}."""'
        alias = [f"original = staticmethod({name})", ""] if shadowed else []
        return "\n".join([doc, "", *alias, wrap_call(f"def forward({parameters}):"), *map(indent, body)])


def _emit_early_return(condition: str, then: str) -> str:
    line = f"if not ({condition}):" if " and " in condition else f"if not {condition}:"
    return f"{wrap_call(line)}\n    {then}"
