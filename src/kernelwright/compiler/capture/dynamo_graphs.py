"""The graphs that Dynamo captures of a program which is no single graph, and what breaks it into them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import fx

from kernelwright.compiler.capture.capture import silence_torch
from kernelwright.compiler.capture.graph_signature import sign_graph
from kernelwright.core.errors import ProblemError
from kernelwright.core.pytree import clone_inputs

MISSING_FAKE = re.compile(r"no fake impl registered for <CustomOpDef\((\w+)::(\w+)\)>")
SKIPPED_OPERATOR = re.compile(r"module: torch\._ops\.\w+, qualname: (\w+)::(\w+)")
TORCH_FOLDER = Path(torch.__file__).parent
MAX_SHOWN = 4
"""Causes of breaks that are listed."""
CONTROL_FLOW = ("generic_jump", "Data-dependent branching")


class Layout(NamedTuple):
    """The layout of a result.

    Attributes:
        shares_with: the index of the first tensor among the inputs and results of the graph that has its storage.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    shares_with: int


@dataclass(frozen=True)
class DynamoGraph:
    """A graph that Dynamo captured, with the inputs of its first call.

    Attributes:
        module: its inputs are tensors: parameters and buffers that it reads, too.
        signature: see `graph_signature`.
        results: the layouts of its results.
    """

    module: fx.GraphModule
    inputs: tuple[torch.Tensor, ...]
    signature: str
    results: tuple[Layout, ...]


@dataclass
class Recording:
    """What Dynamo captured in one call of a program; it is the backend that Dynamo compiles with.

    Attributes:
        graphs: by signature, in the order of their first calls.
        breaks: what broke the program into graphs: torch's reason and the line, each once.
        opaque: operators that Dynamo may not trace, since they have no fake implementation: `namespace.name`.
        num_unsigned: graphs without a signature, which a file could not recognise.
    """

    graphs: dict[str, DynamoGraph] = field(default_factory=dict)
    breaks: dict[str, None] = field(default_factory=dict)
    opaque: dict[str, None] = field(default_factory=dict)
    num_unsigned: int = 0

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return a function that runs a graph, and records it in its first call."""
        self._note_break(getattr(module, "compile_subgraph_reason", None))
        signature, own = sign_graph(module, inputs), fx.GraphModule(module, copy.deepcopy(module.graph))
        self.num_unsigned += signature is None

        def run(*args: Any) -> Any:
            results = own(*args)
            if signature and signature not in self.graphs:
                given = tuple(one.detach() for one in args)
                self.graphs[signature] = DynamoGraph(own, given, signature, describe_results(given, results))
            return results

        return run

    def _note_break(self, found: Any) -> None:
        """Note torch's reason for the end of a graph, with the line of the program."""
        if found is None or not found.graph_break:
            return
        reason = next(iter(str(found.reason).strip().splitlines()), "").rstrip(".")
        reason = "data-dependent control flow" if reason.startswith(CONTROL_FLOW) else reason
        if operator := SKIPPED_OPERATOR.search(str(found.reason)):  # an earlier recording in this process found it
            self.opaque[name := f"{operator[1]}.{operator[2]}"] = None
            reason = f"the operator {name} has no fake implementation"
        own = [frame for frame in found.user_stack if not Path(frame.filename).is_relative_to(TORCH_FOLDER)]
        self.breaks[reason + (f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else "")] = None

    def summary(self, reason: str) -> str:
        """One sentence on the graphs, for the user; `reason` is why the program is no single graph."""
        count, shown = len(self.graphs), list(self.breaks)[:MAX_SHOWN]
        hidden = len(self.breaks) - len(shown)
        why = "; ".join([*shown, *([f"and {hidden} more"] if hidden else [])]) or reason
        graphs = "1 graph" if count == 1 else f"{count} graphs"
        unsigned = f"; {self.num_unsigned} more stay with torch: a file could not recognise them"
        captured = f"the program is captured as {graphs} of torch.compile, not as a whole: {why}"
        return captured + (unsigned if self.num_unsigned else "")


def record_graphs(program: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Recording:
    """Run a program once, without gradients, on copies of its inputs, and record the graphs that Dynamo captures.

    Raises:
        ProblemError: Dynamo cannot run the program.
    """
    recording = Recording()
    while True:
        try:
            _run_with(recording, program, args, kwargs)
            return recording
        except Exception as error:
            found = MISSING_FAKE.search(str(error))
            if found is None or (name := f"{found[1]}.{found[2]}") in recording.opaque:
                line = next(iter(str(error).strip().splitlines()), type(error).__name__)
                raise ProblemError(f"Dynamo cannot run the program: {line}") from error
            torch._dynamo.disallow_in_graph(attrgetter(f"{name}.default")(torch.ops))
            recording = Recording(opaque={**recording.opaque, name: None})


def _run_with(backend: Recording, program: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    forward = program.forward if isinstance(program, torch.nn.Module) else program
    torch._dynamo.reset()  # what other backends compiled counts towards the limit of recompilations
    try:
        with torch.no_grad(), silence_torch():
            given, named = clone_inputs((list(args), kwargs))
            torch.compile(forward, backend=backend, dynamic=False)(*given, **named)
    finally:
        torch._dynamo.reset()


def describe_results(inputs: Sequence[torch.Tensor], results: Sequence[Any]) -> tuple[Layout, ...]:
    """The layouts of a graph's results; what is no tensor has none."""
    tensors = [one for one in results if isinstance(one, torch.Tensor)]
    pointers = [one.untyped_storage().data_ptr() for one in (*inputs, *tensors)]
    own = range(len(inputs), len(pointers))
    return tuple(
        Layout(one.dtype, tuple(one.shape), one.stride(), pointers.index(pointers[at]) if pointers[at] else at)
        for at, one in zip(own, tensors, strict=True)
    )
