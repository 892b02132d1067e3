"""torch.compile of a whole program in another process, while this one plans and times kernels.

That process runs none of the compiled kernels, which would disturb the timing. This one compiles the program again, and
finds the result in inductor's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, fx

from kernelwright.compiler.compile_pool import POOL_NICENESS
from kernelwright.core.pytree import storage_bytes
from kernelwright.problems import load_problem
from kernelwright.sandbox.process_limits import die_with_parent

MAX_MEMORY_SHARE = 1 / 16
"""Part of the device's memory that parameters and inputs may take: this process has them, too."""


class CompileAhead:
    """A process that compiles a program; it ends with this one, or with the block.

    Args:
        target: a problem, as for `kw verify`.
    """

    def __init__(self, target: str, device: str) -> None:
        nothing = subprocess.DEVNULL
        command = [sys.executable, "-m", __name__, target, device, str(os.getpid())]
        self._process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)

    def __enter__(self) -> CompileAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def wait(self, limit_s: float) -> bool:
        """Whether the process has ended, waiting for it if necessary."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(limit_s, 0.0))
        return self._process.poll() is not None


def compile_program(target: str, device: str) -> None:
    """Compile a program, and call it uncompiled; nothing where parameters and inputs are too large for a GPU."""
    problem = load_problem(target)
    program = problem.program_on(device)
    args, kwargs = problem.inputs(device, 0)
    parameters: list[Tensor] = [*program.parameters()] if isinstance(program, torch.nn.Module) else []
    used_bytes = storage_bytes((args, kwargs, parameters))
    if device == "cpu" or used_bytes < MAX_MEMORY_SHARE * torch.cuda.mem_get_info()[1]:
        with torch.no_grad():
            torch.compile(program, backend=_compile_graph, dynamic=False)(*args, **kwargs)


def _compile_graph(graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend that fills inductor's cache, and runs the graph as it is."""
    from torch._inductor.compile_fx import compile_fx

    compile_fx(graph, inputs)
    return graph.forward


def main(target: str, device: str, parent: str) -> None:
    """Compile the program of the command line."""
    die_with_parent(int(parent))
    os.nice(2 * POOL_NICENESS)
    compile_program(target, device)


if __name__ == "__main__":
    main(*sys.argv[1:])
