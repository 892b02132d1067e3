"""Capture of a program as one graph of core ATen operators with explicit parameters, buffers and mutations.

`type: ignore` marks attributes that torch.export types as optional but a finished export always has.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._decomp import get_decompositions
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree

from kernelwright.compiler.capture.decompositions import custom_decompositions
from kernelwright.compiler.capture.origins import mark_call_values
from kernelwright.compiler.capture.recurrences import kept_recurrences, restore_recurrences
from kernelwright.compiler.regions.operators import op_name
from kernelwright.compiler.rewrites.registry import MARKS, OFF_BY_DEFAULT, apply_rewrites
from kernelwright.core.errors import ProblemError
from kernelwright.core.optimization import AppliedRewrite
from kernelwright.problems.signature import is_wrapped
from kernelwright.sandbox.exceptions import find_location

aten = torch.ops.aten
DECOMPOSED = (
    aten._softmax, aten._log_softmax, aten.native_layer_norm, aten.gelu, aten.leaky_relu, aten.glu, aten.elu,
    aten.hardtanh, aten.softplus, aten.logsumexp, aten.celu, aten.selu, aten.linalg_vector_norm,
    aten.addcmul, aten.addcdiv, aten.lerp,
)  # fmt: skip
"""Core ATen operators that become several steps of a region."""
NOT_DECOMPOSED = (aten.var, aten.var_mean, aten.std, aten.std_mean, aten.mean)
"""Reductions that a region supports directly and that torch's decomposition would obscure."""
KEPT_AS_CALLS = (
    "linear", "matmul", "scaled_dot_product_attention", "conv1d", "conv2d", "conv3d", "einsum",
    "lstm", "gru", "rnn_tanh", "rnn_relu",
    "linalg_cholesky", "linalg_inv", "inverse", "linalg_solve", "linalg_det", "linalg_slogdet", "linalg_lu_factor",
)  # fmt: skip
"""Operators that stay with torch and read better as one call; those of linear algebra check values, which as a step of
their own has an effect and an order."""
INDEXED_OPS = (
    "index_add", "embedding_dense_backward", "im2col", "col2im", "max_unpool2d", "max_unpool3d",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d",
    "upsample_linear1d", "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
"""Operators whose decomposition into indexed reads or writes would stay with torch and be slower: index_add takes
0.24 ms, as index_put 0.59 ms; bicubic interpolation 10 ms and 77 ms (Xeon, one thread)."""


class Source(NamedTuple):
    """The origin of a placeholder's tensor.

    Attributes:
        kind: `parameter`, `buffer`, `argument` or `constant`.
        name: path in the module; for an argument, its index among the leaves of (args, kwargs).
        value: of a constant.
    """

    kind: str
    name: str
    value: Any = None


NOT_CAPTURED_HINT = "kw optimize without --show, which times torch.compile of the program, too"


@dataclass(frozen=True)
class CapturedProgram:
    """One call of a program as a graph over flat tensors.

    Attributes:
        graph: core ATen operators, functional.
        exported: the original calls; some may mutate.
        sources: the origin of each placeholder of `graph`.
        results: for each output of `graph` its target: (`output`, ""), or the (`buffer`, path) or (`argument`, index)
            that it updates.
        out_spec: pytree of the result.
        training: whether each module was in train mode, in the order of `modules()`; empty if the program is the same
            in both modes.
        rewrites: what was rewritten after the capture.
    """

    graph: fx.Graph
    exported: fx.GraphModule
    sources: dict[fx.Node, Source]
    results: tuple[tuple[str, str], ...]
    out_spec: pytree.TreeSpec
    training: tuple[bool, ...] = ()
    rewrites: tuple[AppliedRewrite, ...] = ()

    @property
    def is_rewritten(self) -> bool:
        """Whether the graph differs from the program's own."""
        return any(rewrite.name not in MARKS for rewrite in self.rewrites)


def capture(
    program: Callable[..., Any], args: Any, kwargs: Any, disabled: Set[str] = OFF_BY_DEFAULT
) -> CapturedProgram:
    """Capture one call of a program with static shapes, and rewrite its graph.

    Args:
        disabled: names of rewrites that are not applied; see `rewrites.registry`.

    Raises:
        ProblemError: the program cannot be captured as one graph; the message is torch's.
    """
    return _rewrite(_capture_unchanged(program, args, kwargs), disabled)


def capture_graph(
    module: fx.GraphModule, inputs: Sequence[torch.Tensor], static: Set[int], disabled: Set[str] = OFF_BY_DEFAULT
) -> CapturedProgram:
    """Capture a graph of Dynamo's, whose arguments are all that it reads, and rewrite it.

    Args:
        static: indices of the arguments that are parameters and buffers of the program: the same in most calls.
        disabled: as for `capture`.
    Raises:
        ProblemError: torch.export cannot capture the graph.
    """
    captured = _capture_unchanged(module, inputs, {})
    of_module = {str(index) for index in static}
    sources = {
        node: source._replace(kind="buffer") if source.kind == "argument" and source.name in of_module else source
        for node, source in captured.sources.items()
    }
    return replace(captured, rewrites=apply_rewrites(captured.graph, sources, disabled))


def _rewrite(captured: CapturedProgram, disabled: Set[str]) -> CapturedProgram:
    """Rewrite a captured graph in place."""
    return replace(captured, rewrites=apply_rewrites(captured.graph, captured.sources, disabled))


def _capture_unchanged(program: Callable[..., Any], args: Any, kwargs: Any) -> CapturedProgram:
    """Capture one call of a program with static shapes.

    Raises:
        ProblemError: as `capture`.
    """
    _require_plain_call(program)
    module = program if isinstance(program, torch.nn.Module) else _AsModule(program)
    args, kwargs = normalize_call(program, args, kwargs)
    try:
        with silence_torch(), _without_own_hooks(module), kept_recurrences():
            exported = torch.export.export(module, args, kwargs, strict=False)
            decomposed = exported.run_decompositions(build_decomposition_table())
    except Exception as error:
        raise ProblemError(_explain_failure(error), next=NOT_CAPTURED_HINT, where=find_location(error)) from error
    restore_recurrences([exported.graph_module, decomposed.graph_module])
    graph = decomposed.graph_module.graph
    _require_static(decomposed)
    for node in [node for node in graph.nodes if op_name(node.target).startswith("_assert")]:
        graph.erase_node(node)
    remove_aliases(graph)
    mark_call_values(graph)
    return CapturedProgram(
        graph,
        exported.graph_module,  # type: ignore[arg-type]
        _sources(decomposed),
        tuple(_result(spec, decomposed) for spec in decomposed.graph_signature.output_specs),
        decomposed.call_spec.out_spec,  # type: ignore[arg-type]
    )


@contextlib.contextmanager
def _without_own_hooks(module: torch.nn.Module) -> Iterator[None]:
    """Capture `forward` alone: the hooks of the module itself run around the forward that replaces it, too."""
    names = ("_forward_hooks", "_forward_pre_hooks")
    hooks = {name: getattr(module, name) for name in names}
    try:
        for name, own in hooks.items():
            setattr(module, name, type(own)())
        yield
    finally:
        for name, own in hooks.items():
            setattr(module, name, own)


def _require_plain_call(program: Callable[..., Any]) -> None:
    """Check that a call of a module is a call of `forward`, which is what the file replaces.

    Raises:
        ProblemError: a `__call__` of its class does more.
    """
    if not isinstance(program, torch.nn.Module) or isinstance(program, fx.GraphModule):
        return
    if inspect.getattr_static(type(program), "__call__") is not torch.nn.Module.__call__:
        raise ProblemError("the module has a __call__ of its own around its forward", next="move it into forward")


def _require_static(exported: torch.export.ExportedProgram) -> None:
    """Check that a graph has the same shapes in every call, and no operators with effects.

    Raises:
        ProblemError: it has not.
    """
    shapes = [node.meta["val"].shape for node in exported.graph.nodes if hasattr(node.meta.get("val"), "shape")]
    if any(isinstance(size, torch.SymInt) for shape in shapes for size in shape):
        raise ProblemError("the shapes of its tensors depend on values", next=NOT_CAPTURED_HINT)
    if any(spec.kind is InputKind.TOKEN for spec in exported.graph_signature.input_specs):
        raise ProblemError("it has operators with effects, such as checks of values", next=NOT_CAPTURED_HINT)


def _depends_on_mode(module: torch.nn.Module) -> bool:
    """Whether a module is known to compute something else in the other mode, which saves the capture in that mode."""
    match module:
        case torch.nn.modules.batchnorm._NormBase():
            return module.track_running_stats
        case torch.nn.modules.dropout._DropoutNd():
            return module.p > 0
        case _:
            return False


def capture_with_training_mode(
    program: Callable[..., Any], args: Any, kwargs: Any, disabled: Set[str] = OFF_BY_DEFAULT
) -> CapturedProgram:
    """Capture one call as `capture` does, and record the train/eval flags if the graph depends on them."""
    captured = _capture_unchanged(program, args, kwargs)
    if not isinstance(program, torch.nn.Module):
        return _rewrite(captured, disabled)
    modules = list(program.modules())
    training = tuple(module.training for module in modules)
    others = [mode for mode in (True, False) if {mode} != set(training)]  # both, if modules differ in mode
    try:
        same = not any(map(_depends_on_mode, modules)) and all(
            _describe(_capture_unchanged(program.train(mode), args, kwargs)) == _describe(captured) for mode in others
        )
    except ProblemError:
        same = False
    finally:
        for module, mode in zip(modules, training, strict=True):
            module.training = mode
    return _rewrite(captured if same else replace(captured, training=training), disabled)


def _describe(captured: CapturedProgram) -> str:
    constants = [source.value for source in captured.sources.values() if source.kind == "constant"]
    literals = [value.tolist() if isinstance(value, torch.Tensor) else value for value in constants]
    return f"{captured.graph}\n{captured.results}\n{captured.out_spec}\n{literals}"


@contextlib.contextmanager
def silence_torch() -> Iterator[None]:
    """Suppress torch's log messages and warnings; the exception has the same information."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _explain_failure(error: BaseException) -> str:
    """The first line of torch's message, or an explanation of the most common error."""
    if "data-dependent" in str(error):
        return "data-dependent control flow cannot be captured"
    return f"torch.export cannot capture it: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"


def remove_aliases(graph: fx.Graph) -> None:
    """Remove alias, detach and lift_fresh_copy nodes from a graph, in place."""
    for node in [node for node in graph.nodes if op_name(node.target) in ("alias", "detach", "lift_fresh_copy")]:
        node.replace_all_uses_with(node.all_input_nodes[0])
        graph.erase_node(node)


def _sources(exported: torch.export.ExportedProgram) -> dict[fx.Node, Source]:
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder"]
    sources: dict[fx.Node, Source] = {}
    num_arguments = 0
    for node, spec in zip(nodes, exported.graph_signature.input_specs, strict=True):
        match spec.kind:
            case InputKind.PARAMETER | InputKind.BUFFER:
                sources[node] = Source(spec.kind.name.lower(), str(spec.target))
            case InputKind.USER_INPUT:
                sources[node] = Source("argument", str(num_arguments))
                num_arguments += 1
            case _:
                sources[node] = Source("constant", node.name, exported.constants.get(str(spec.target)))
    return sources


def _result(spec: Any, exported: torch.export.ExportedProgram) -> tuple[str, str]:
    match spec.kind:
        case OutputKind.BUFFER_MUTATION:
            return "buffer", spec.target
        case OutputKind.USER_INPUT_MUTATION:
            return "argument", str(list(exported.graph_signature.user_inputs).index(spec.target))
    return "output", ""


def normalize_call(program: Callable[..., Any], args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) of the same call with defaults applied and arguments positional where possible; what a
    wrapped function gets by keyword, it gets by keyword, since the wrapper may look for it there."""
    bound = forward_signature(program).bind(*args, **kwargs)
    bound.apply_defaults()
    if not is_wrapped(program):
        return bound.args, bound.kwargs
    names = list(bound.arguments)[len(args) : len(bound.args)]
    return tuple(args), {name: bound.arguments[name] for name in names} | bound.kwargs


def forward_signature(program: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, or of a module's `forward`."""
    return inspect.signature(program.forward if isinstance(program, torch.nn.Module) else program)


class _AsModule(torch.nn.Module):
    """Wraps a function as a module with the same argument names."""

    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = program


@functools.cache
def build_decomposition_table() -> dict[Any, Any]:
    """Return the decompositions for `ExportedProgram.run_decompositions`, by operator overload."""
    table = dict(torch.export.default_decompositions())
    table |= get_decompositions(list(DECOMPOSED)) | custom_decompositions()
    kept = {getattr(packet, name) for packet in NOT_DECOMPOSED for name in packet.overloads()}
    kept_names = {*KEPT_AS_CALLS, *INDEXED_OPS}
    return {
        operator: rule
        for operator, rule in table.items()
        if operator not in kept and op_name(operator) not in kept_names
    }
