"""A program as one graph of core ATen operators, with nothing hidden: parameters, buffers and mutations by name.

`type: ignore` stands where torch.export types as optional what a finished export always has.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._decomp import get_decompositions
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.decompositions import custom_decompositions
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.concat_sinking import sink_concats
from kernelwright.compiler.rewrites.diagonals import gather_diagonals
from kernelwright.compiler.rewrites.means import fuse_means
from kernelwright.compiler.rewrites.row_sums import reduce_rows_first
from kernelwright.compiler.rewrites.scan_slicing import slice_cumsums
from kernelwright.core.errors import ProblemError
from kernelwright.sandbox.exceptions import find_location

aten = torch.ops.aten
DECOMPOSED = (
    aten._softmax, aten._log_softmax, aten.native_layer_norm, aten.gelu, aten.leaky_relu, aten.glu, aten.elu,
    aten.hardtanh, aten.softplus, aten.logsumexp, aten.celu, aten.selu, aten.linalg_vector_norm,
    aten.addcmul, aten.addcdiv, aten.lerp,
)  # fmt: skip
"""Operators of core ATen that are several steps of a region."""
NOT_DECOMPOSED = (aten.var, aten.var_mean, aten.std, aten.std_mean, aten.mean)
"""What torch would take apart into operators that hide what is meant."""
KEPT_AS_CALLS = ("linear", "matmul", "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d", "einsum")
"""What stays with torch and reads better as one call."""
INDEXED_OPS = (
    "index_add", "embedding_dense_backward", "im2col", "col2im", "max_unpool2d", "max_unpool3d",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "upsample_linear1d", "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
"""What would be taken apart into reads or writes by index, which stay with torch too and are slower than its own
operator: index_add 0.24 ms, as index_put 0.59; bicubic interpolation 10 and 77 (Xeon, one thread)."""


class Source(NamedTuple):
    """Where a placeholder's tensor comes from: `parameter` or `buffer` and its path in the module, `argument` and its
    place among the leaves of (args, kwargs), or `constant` with its value."""

    kind: str
    name: str
    value: Any = None


GRAPH_BREAK_HINT = 'torch.compile(model, backend="kernelwright") optimises what lies between the breaks'


@dataclass(frozen=True)
class CapturedProgram:
    """One call of a program as a graph over flat tensors.

    Attributes:
        graph: core ATen operators, nothing mutated.
        exported: the calls as the program made them; some may mutate.
        sources: what each placeholder of `graph` is.
        results: for each value that `graph` returns, what it is for: (`output`, ""), or the (`buffer`, path) or
            (`argument`, place) that it replaces.
        out_spec: of the result.
        training: whether each module was in train mode, in the order of `modules()`; nothing where the program is the
            same in train and in eval mode.
    """

    graph: fx.Graph
    exported: fx.GraphModule
    sources: dict[fx.Node, Source]
    results: tuple[tuple[str, str], ...]
    out_spec: pytree.TreeSpec
    training: tuple[bool, ...] = ()


def capture(program: Callable[..., Any], args: Any, kwargs: Any) -> CapturedProgram:
    """The graph of one call, for shapes as they are.

    Raises:
        ProblemError: the program cannot be captured whole; the message is torch's.
    """
    module = program if isinstance(program, torch.nn.Module) else _AsModule(program)
    args, kwargs = normalize_call(program, args, kwargs)
    try:
        with _silence_torch():
            exported = torch.export.export(module, args, kwargs, strict=False)
            taken_apart = exported.run_decompositions(build_decomposition_table())
    except Exception as fault:
        raise ProblemError(_explain_failure(fault), next=GRAPH_BREAK_HINT, where=find_location(fault)) from fault
    graph = taken_apart.graph_module.graph
    for node in [node for node in graph.nodes if op_name(node.target).startswith("_assert")]:
        graph.erase_node(node)
    remove_aliases(graph)
    fuse_means(graph)
    gather_diagonals(graph)
    slice_cumsums(graph)
    reduce_rows_first(graph)
    sink_concats(graph)
    return CapturedProgram(
        graph,
        exported.graph_module,  # type: ignore[arg-type]
        _sources(taken_apart),
        tuple(_result(spec, taken_apart) for spec in taken_apart.graph_signature.output_specs),
        taken_apart.call_spec.out_spec,  # type: ignore[arg-type]
    )


def capture_with_training_mode(program: Callable[..., Any], args: Any, kwargs: Any) -> CapturedProgram:
    """The same, with what it takes for granted about train and eval mode."""
    found = capture(program, args, kwargs)
    if not isinstance(program, torch.nn.Module):
        return found
    modules = list(program.modules())
    training = tuple(module.training for module in modules)
    others = [mode for mode in (True, False) if {mode} != set(training)]  # both of them where modes are mixed
    try:
        same = all(_describe(capture(program.train(mode), args, kwargs)) == _describe(found) for mode in others)
    except ProblemError:
        same = False
    finally:
        for module, mode in zip(modules, training, strict=True):
            module.training = mode
    return found if same else replace(found, training=training)


def _describe(captured: CapturedProgram) -> str:
    constants = [source.value for source in captured.sources.values() if source.kind == "constant"]
    shown = [value.tolist() if isinstance(value, torch.Tensor) else value for value in constants]
    return f"{captured.graph}\n{captured.results}\n{captured.out_spec}\n{shown}"


@contextlib.contextmanager
def _silence_torch() -> Iterator[None]:
    """Without what torch says on the way: the error says it shorter."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _explain_failure(fault: BaseException) -> str:
    """The first line of what torch says; for the commonest of all, what it means."""
    if "data-dependent" in str(fault):
        return "it branches on the value of a tensor, which no graph can hold"
    return f"torch.export cannot capture it: {next(iter(str(fault).strip().splitlines()), type(fault).__name__)}"


def remove_aliases(graph: fx.Graph) -> None:
    """Takes out what gives its argument another name and nothing else."""
    for node in [node for node in graph.nodes if op_name(node.target) in ("alias", "detach", "lift_fresh_copy")]:
        node.replace_all_uses_with(node.all_input_nodes[0])
        graph.erase_node(node)


def _sources(exported: torch.export.ExportedProgram) -> dict[fx.Node, Source]:
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder"]
    found: dict[fx.Node, Source] = {}
    arguments = 0
    for node, spec in zip(nodes, exported.graph_signature.input_specs, strict=True):
        match spec.kind:
            case InputKind.PARAMETER | InputKind.BUFFER:
                found[node] = Source(spec.kind.name.lower(), str(spec.target))
            case InputKind.USER_INPUT:
                found[node] = Source("argument", str(arguments))
                arguments += 1
            case _:
                found[node] = Source("constant", node.name, exported.constants.get(str(spec.target)))
    return found


def _result(spec: Any, exported: torch.export.ExportedProgram) -> tuple[str, str]:
    match spec.kind:
        case OutputKind.BUFFER_MUTATION:
            return "buffer", spec.target
        case OutputKind.USER_INPUT_MUTATION:
            return "argument", str(list(exported.graph_signature.user_inputs).index(spec.target))
    return "output", ""


def normalize_call(program: Callable[..., Any], args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same call with every argument in its place and all defaults given: positional where it can be."""
    bound = forward_signature(program).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


def forward_signature(program: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(program.forward if isinstance(program, torch.nn.Module) else program)


class _AsModule(torch.nn.Module):
    """A function as a module; its arguments keep their names."""

    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = program


@functools.cache
def build_decomposition_table() -> dict[Any, Any]:
    table = dict(torch.export.default_decompositions())
    table |= get_decompositions(list(DECOMPOSED)) | custom_decompositions()
    kept = {overload for whole in NOT_DECOMPOSED for overload in (getattr(whole, n) for n in whole.overloads())}
    whole = {*KEPT_AS_CALLS, *INDEXED_OPS}
    return {
        operator: rule for operator, rule in table.items() if operator not in kept and op_name(operator) not in whole
    }
