"""torch.compile of a whole program in another process, while this one plans kernels.

This process compiles the program again, and finds the result in inductor's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import torch
from torch import Tensor

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
    """Call a compiled program once; nothing where its parameters and inputs take too much of a GPU's memory."""
    problem = load_problem(target)
    program = problem.program_on(device)
    args, kwargs = problem.inputs(device, 0)
    parameters: list[Tensor] = [*program.parameters()] if isinstance(program, torch.nn.Module) else []
    used_bytes = storage_bytes((args, kwargs, parameters))
    if device == "cpu" or used_bytes < MAX_MEMORY_SHARE * torch.cuda.mem_get_info()[1]:
        with torch.no_grad():
            torch.compile(program, dynamic=False)(*args, **kwargs)


def main(target: str, device: str, parent: str) -> None:
    """Compile the program of the command line."""
    die_with_parent(int(parent))
    compile_program(target, device)


if __name__ == "__main__":
    main(*sys.argv[1:])
