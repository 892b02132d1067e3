"""The layer that replays a program as one CUDA graph: no launch overhead, at the price of copies in and out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.compiler.assembly.output_file import LayerBelow, indent
from kernelwright.compiler.kernel_source import wrap_call
from kernelwright.problems import Problem

NUM_PLAIN_CALLS = 2
TEMPLATE = (
    f"""
NUM_PLAIN_CALLS = {NUM_PLAIN_CALLS}
"""
    + '''"""Calls before the capture: they compile, tune and allocate what a capture must not."""


class Replay:
    """A function captured in a CUDA graph, for inputs of one layout.

    Inputs are copied into the graph's memory, results are copied out of it; parameters and buffers are read and written
    in place. Whenever anything differs from the capture, or the function cannot be captured, it is called as it is.
    """

    def __init__(self):
        self.num_calls, self.graph, self.failed, self.lock = 0, None, False, threading.Lock()

    def __deepcopy__(self, memo):
        return Replay()

    def __reduce__(self):
        return Replay, ()

    def __call__(self, module, function, args, kwargs):
        leaves, spec = tree_flatten((args, kwargs))
        self.num_calls += 1
        if self.failed or self.num_calls <= NUM_PLAIN_CALLS:
            return function(*args, **kwargs)
        with self.lock:
            if self.graph is None and not self.failed:
                self.capture(module, function, leaves, spec)
            if self.graph is not None and self.fits(module, leaves, spec):
                for static, leaf in zip(self.static, leaves):
                    if isinstance(leaf, torch.Tensor):
                        static.copy_(leaf)
                self.graph.replay()
                return tree_unflatten([copy_of(one) for one in self.results], self.result_spec)
        return function(*args, **kwargs)

    def fits(self, module, leaves, spec):
        """Whether a call is like the captured one."""
        return (
            spec == self.spec
            and torch.cuda.current_stream() == self.stream
            and all(map(is_like, leaves, self.static))
            and all(owner.get(name) is value for owner, name, value in self.state)
            and all(value.data_ptr() == address for value, address in self.addresses)
            and all(one.training == mode for one, mode in self.modes)
        )

    def capture(self, module, function, leaves, spec):
        """Capture the function, or note that it cannot be captured."""
        self.failed = True
        state = [value for one in module.modules() for value in (*one._parameters.values(), *one._buffers.values())]
        state = [value for value in state if value is not None]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if not all(one.is_cuda and one.layout is torch.strided for one in (*tensors, *state)):
            return
        self.spec, self.stream = spec, torch.cuda.current_stream()
        self.static = [static_copy(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self.state = [
            (owner, name, value)
            for one in module.modules()
            for owner in (one._parameters, one._buffers, one._modules)
            for name, value in owner.items()
        ]
        self.addresses = [(value, value.data_ptr()) for value in state]
        self.modes = [(one, one.training) for one in module.modules()]
        before = [one._version for one in self.static if isinstance(one, torch.Tensor)]
        attributes = [(vars(one), dict(vars(one))) for one in module.modules()]
        graph = torch.cuda.CUDAGraph()
        try:
            args, kwargs = tree_unflatten(self.static, spec)
            with torch.cuda.graph(graph):
                result = function(*args, **kwargs)
        except Exception:  # of the program or of CUDA: what cannot be captured is called as it is
            with contextlib.suppress(Exception), torch.cuda.graph(torch.cuda.CUDAGraph()):
                torch.zeros(1, device="cuda")  # a failed capture leaves torch's generator in capture mode
            return
        self.results, self.result_spec = tree_flatten(result)
        changed = before != [one._version for one in self.static if isinstance(one, torch.Tensor)]
        storages = [one.untyped_storage().data_ptr() for one in self.results if isinstance(one, torch.Tensor)]
        shared = {one.untyped_storage().data_ptr() for one in (*self.static, *state) if isinstance(one, torch.Tensor)}
        changed = changed or any(now.get(name) is not value for now, old in attributes for name, value in old.items())
        if not (changed or len(set(storages)) < len(storages) or shared & set(storages)):
            self.graph, self.failed = graph, False  # else it changes more than tensors, or returns a view


def replay_of(module):
    """The replay of a module, made in its first call."""
    return vars(module).get("cuda_graph_replay") or vars(module).setdefault("cuda_graph_replay", Replay())


def can_replay():
    """Whether nothing records, traces or intercepts this call."""
    return not (
        torch.compiler.is_compiling()
        or torch.is_grad_enabled()
        or not torch.cuda.is_initialized()
        or torch.is_autocast_enabled("cuda")
        or torch.cuda.is_current_stream_capturing()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack()
    )


def is_like(value, static):
    """Whether a leaf of the arguments has the layout, or is the value, that was captured."""
    if isinstance(static, torch.Tensor):
        return (
            isinstance(value, torch.Tensor)
            and value.dtype is static.dtype
            and value.shape == static.shape
            and value.stride() == static.stride()
            and value.is_cuda
        )
    return type(value) is type(static) and value == static


def static_copy(value):
    """Memory of the same layout with the same values."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def copy_of(value):
    """A copy of a result; other values than tensors are the same in every call."""
    return static_copy(value) if isinstance(value, torch.Tensor) else value
'''
)


@dataclass(frozen=True)
class CudaGraphLayer:
    """Replays `forward` of the class below."""

    class_name: str = "Graphed"
    imports: str = "import contextlib\nimport threading\nfrom torch.utils._pytree import tree_flatten, tree_unflatten"

    def sections(self, problem: Problem) -> Sequence[tuple[str, str]]:
        """The class that captures and replays."""
        return [("CUDA graph", TEMPLATE)]

    def body(self, below: LayerBelow) -> str:
        """`forward`: a replay if the call is like the captured one, else a call."""
        rename, (parameters, arguments) = below.rename, below.signature()
        positional, keywords = below.split_arguments()
        called = below.name if below.is_function else "super().forward"
        body = [
            f"if not {rename('can_replay')}():",
            f"    return {below.call(arguments)}",
            f"return {rename('replay_of')}(self)(self, {called}, ({positional}), dict({keywords}))",
        ]
        doc = f'"""{below.name}, replayed as a CUDA graph."""'
        return "\n".join([doc, "", wrap_call(f"def forward({parameters}):"), *map(indent, body)])
