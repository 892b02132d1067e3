"""The layer that lets cuDNN time its algorithms for each convolution, in place of its heuristics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.compiler.assembly.output_file import LayerBelow, indent
from kernelwright.compiler.kernel_source import wrap_call
from kernelwright.problems import Problem

TEMPLATE = '''
@contextlib.contextmanager
def fastest_cudnn_algorithms():
    """Let cuDNN time its algorithms; it remembers the fastest for each layout."""
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
'''


@dataclass(frozen=True)
class CudnnBenchmarkLayer:
    """Sets `torch.backends.cudnn.benchmark` during each call."""

    class_name: str = "Benchmarked"
    imports: str = "import contextlib"

    def sections(self, problem: Problem) -> Sequence[tuple[str, str]]:
        """The context that sets the flag."""
        return [("cuDNN", TEMPLATE)]

    def body(self, below: LayerBelow) -> str:
        """`forward` with the flag set."""
        parameters, arguments = below.signature()
        doc = f'"""{below.name} with the fastest of cuDNN\'s algorithms; cuDNN times them in the first call."""'
        body = [f"with {below.rename('fastest_cudnn_algorithms')}():", f"    return {below.call(arguments)}"]
        return "\n".join([doc, "", wrap_call(f"def forward({parameters}):"), *map(indent, body)])
