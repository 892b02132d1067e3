"""Printed Triton as Python functions: interpreted, where `libdevice` is torch, or compiled for a GPU that is not here.

Triton's interpreter is switched on before Triton is imported, so files with interpreted cases run themselves once in a
process of their own.
"""

import gc
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

from kernelwright.compiler.triton.generators import print_region
from kernelwright.compiler.triton.launcher_template import LAUNCHER_TEMPLATE

POINTERS = {
    "float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "bool": "i1", "int16": "i16", "uint8": "u8", "int8": "i8",
}  # fmt: skip
HEAD = "import torch\nimport triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"


def interpret(file, names):
    """What the cases of a file gave, from the process that interprets."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", file, *names],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


def selected_cases(request, test):
    """The parameters `name` of the selected cases of a test, for one process."""
    wanted = request.node.path.name, test
    items = [item for item in request.session.items if (item.path.name, item.originalname) == wanted]
    return [item.callspec.params["name"] for item in items]


def report_cases(cases):
    """Runs functions by name and prints a JSON object: for each the fault, empty for none, and its seconds."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))
    import brisk_export  # noqa: F401 - it patches torch
    import brisk_interpreter  # noqa: F401 - it patches Triton's interpreter

    gc.disable()
    quick_extremes()
    fused_products()
    torch.set_num_threads(1)
    found = {}
    for name, run in cases.items():
        began = time.perf_counter()
        try:
            run()
            fault = ""
        except Exception:
            fault = traceback.format_exc()
        found[name] = {"fault": fault, "seconds": time.perf_counter() - began}
    print(json.dumps(found))


def module_of(printed, library=True):
    """The printed text as a module; Triton reads the source of its kernels from a file."""
    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(HEAD + LAUNCHER_TEMPLATE + "\n\n" + printed.source + "\n\n" + printed.launcher)
    spec = importlib.util.spec_from_file_location(Path(file.name).stem, file.name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    Path(file.name).unlink()
    if library:
        module.libdevice = Library()
    return module


class Library:
    """libdevice's functions as torch's, on the arrays of the interpreter."""

    def __getattr__(self, name):
        import triton.language as tl
        from triton.runtime.interpreter import TensorHandle

        called = {"rint": torch.round, "fast_expf": torch.exp}
        function = called.get(name) or getattr(torch, name)

        def on_arrays(*given):
            arrays = [torch.as_tensor(value.handle.data) for value in given]
            result = function(*arrays).numpy()
            handle = TensorHandle(result, given[0].dtype.scalar)
            shape = [*result.shape]
            return tl.tensor(handle, tl.block_type(given[0].dtype.scalar, shape) if shape else given[0].dtype.scalar)

        return on_arrays


def quick_extremes():
    """The interpreter reduces with a function element by element; numpy knows a maximum that keeps NaN."""
    import numpy
    from triton.runtime.interpreter import ReduceOps

    slow = ReduceOps.generic_reduce

    def reduce(self, given):
        function = {"maximum_nan": numpy.max, "minimum_nan": numpy.min}.get(self.combine_fn.fn.__name__)
        return self.min_max(given[0], val_reduce_op=function) if function else slow(self, given)

    ReduceOps.generic_reduce = reduce


def fused_products():
    """The interpreter rounds the product of a fused multiply-add, which no GPU does."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def create_fma(self, x, y, z):
        exact = x.data.astype("float64") * y.data + z.data
        return TensorHandle(exact.astype(z.data.dtype), z.dtype.scalar)

    InterpreterBuilder.create_fma = create_fma


def compiled(region, choice):
    """The kernels of a region as machine code for a GPU that is not here."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    printed = print_region(region, choice)
    module = module_of(printed, library=False)
    types = {f"{place.buffer}_ptr": place.dtype for place in (*region.loads, *region.stores)}
    types |= {f"{name}_ptr": dtype for name, dtype in printed.scratch.items()}
    for name in printed.kernel_names:
        function = getattr(module, name)
        signature = {name: f"*{POINTERS[types[name]]}" for name in function.arg_names}
        yield triton.compile(
            ASTSource(function, signature, {}, {(at,): [["tt.divisibility", 16]] for at in range(len(signature))}),
            target=GPUTarget("cuda", 90, 32),
            options={"num_warps": choice.num_warps},
        )
