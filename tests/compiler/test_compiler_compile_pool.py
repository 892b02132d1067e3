"""Kernels that other processes compile are found in Triton's cache, wherever they stand in a file."""

import math
import os
import subprocess
import sys
import textwrap

import pytest

from kernelwright.compiler.compile_pool import CompilePool, CompileTask
from kernelwright.compiler.kernel_source import kernel_lines

pytest.importorskip("triton")
COMPILE_AND_RUN = """
import importlib.util, sys
from pathlib import Path

import torch

from kernelwright.compiler.backends import TRITON
from kernelwright.compiler.capture.target_device import capturing_for
from kernelwright.compiler.compile_pool import CompileTask, compile_module
from kernelwright.compiler.kernel_source import RegionKernel, kernel_lines, load
from kernelwright.compiler.planning import plan_program

cache, folder = Path(sys.argv[1]), Path(sys.argv[2])
x = torch.randn(64, 128)
with capturing_for("cuda"), torch.no_grad():
    plan = plan_program(lambda x: torch.cumsum(torch.softmax(x * 2, -1), 0), [x], {})
kernels = [RegionKernel(part.region, TRITON.generate_configs(part.region)[0]) for part in plan.regions]
assert len(kernels) == 2
text = "import math\\n\\n\\n\\n" + TRITON.emit_module(kernels)


def compiled():
    return len([*cache.rglob("*.cubin")])


for lines in ((), tuple(kernel_lines(text).items())):
    for kernel in kernels:
        task = CompileTask(TRITON.emit_module([kernel]), kernel.region.name, ("float32",), lines=lines)
        compile_module(task, (9, 0))
expected = compiled()
path = folder / "written.py"
path.write_text(text)
spec = importlib.util.spec_from_file_location("written", path)
written = importlib.util.module_from_spec(spec)
spec.loader.exec_module(written)
for module in (load(text), load("import re\\n" + text), written):
    for kernel in kernels:
        getattr(module, kernel.region.name)(x)
print(expected, compiled())
"""


def test_kernels_are_compiled_once_for_all_files_in_memory_and_once_for_the_written_file(tmp_path):
    cache = tmp_path / "triton"
    done = subprocess.run(
        [sys.executable, "-c", COMPILE_AND_RUN, str(cache), str(tmp_path)],
        env=os.environ | {"TRITON_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    expected, compiled = map(int, done.stdout.split())
    assert expected >= 4
    assert compiled == expected


def test_the_line_of_a_kernel_is_that_of_its_decorator():
    text = textwrap.dedent("""
        import functools

        def plain(): ...

        @functools.cache
        def kernel(): ...
    """)
    assert kernel_lines(text) == {"kernel": 6}


def test_what_is_cancelled_is_compiled_if_it_is_given_again(tmp_path):
    log = tmp_path / "log"
    tasks = [
        CompileTask(
            f"import time; time.sleep(0.1)\nwith open({str(log)!r}, 'a') as log: print({one}, file=log)", "", ()
        )
        for one in range(64)
    ]
    with CompilePool(None) as pool:
        for task in tasks:
            pool.submit(task)
        pool.cancel()
        assert pool.is_done(tasks[-1])
        pool.submit(tasks[-1])
        pool.wait(tasks, math.inf)
        compiled = [int(line) for line in log.read_text().split()]
    assert compiled.count(63) == 1
    assert len(compiled) < 64
