"""Generated kernels as Python source that depends on torch and a compiler, and on this package only for its product."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from kernelwright.compiler.cpp.prelude import select_prelude
from kernelwright.compiler.cpp.printer import print_cpp
from kernelwright.compiler.regions.axes import Unsupported
from kernelwright.compiler.regions.contraction import AnyRegion
from kernelwright.compiler.regions.region import Region, Store
from kernelwright.compiler.triton.generators import print_region
from kernelwright.compiler.triton.launcher_template import LAUNCHER_TEMPLATE
from kernelwright.compiler.triton.triton_source import TritonSource
from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.toolchain.cpp import FLAGS

WIDTH = 100
IMPORT_MODULES = {"device": "torch", "inf": "math", "nan": "math"}
"""Modules of the names that the code of an fx graph uses without importing them."""
CPU_IMPORTS = """import ctypes, hashlib, os, platform, subprocess, tempfile, warnings
from pathlib import Path

import torch
"""
CUDA_IMPORTS = """import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import driver
"""
COMPILE_TEMPLATE = '''
FLAGS = "{flags}".split()


def compile_library(source: str) -> ctypes.CDLL:
    """Compile a C++ source into a shared library, once on each machine."""
    folder = Path(os.environ.get("KERNELWRIGHT_CACHE") or Path.home() / ".cache" / "kernelwright") / "owned"
    key = hashlib.sha256(" ".join([source, *FLAGS, platform.node()]).encode()).hexdigest()[:24]
    library = folder / f"{{key}}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            output = Path(scratch) / "kernels.so"
            command = [os.environ.get("CXX", "c++"), *FLAGS, "-x", "c++", "-", "-o", str(output)]
            result = subprocess.run(command, input=source, text=True, capture_output=True)
            if result.returncode:
                raise RuntimeError(result.stderr)
            output.replace(library)
    return ctypes.CDLL(str(library))


try:
    KERNELS = compile_library(SOURCE)
{declared}
except (OSError, RuntimeError) as error:
    KERNELS = None
    warnings.warn(f"kernels do not compile here, running the original program: {{error}}", RuntimeWarning)
'''
"""To check that kernels compile, turn the warning into an error."""


class RegionKernel(NamedTuple):
    """One implementation of a region.

    Attributes:
        config: of the backend; None where torch.compile compiles `torch_source`.
        torch_source: the region as a plain torch function named `REGION_plain`.
        in_place: outputs that are written into an existing tensor, with that tensor's name.
    """

    region: AnyRegion
    config: Any
    torch_source: str = ""
    in_place: Mapping[str, str] = MappingProxyType({})


def emit_cpp(kernels: Sequence[RegionKernel]) -> str:
    """Generate Python that compiles C++ kernels and defines a function for each region: tensors in, new tensors out.

    Raises:
        Unsupported: a step is not supported by the C++ backend.
    """
    regions = [kernel.region for kernel in kernels if isinstance(kernel.region, Region)]
    if len(regions) < len(kernels):
        raise Unsupported("a contraction in C++")
    body = "\n".join(
        print_cpp(region, kernel.config, kernel.in_place) for region, kernel in zip(regions, kernels, strict=True)
    )
    counts = {one.region.name: len(one.region.reads) + len(one.region.writes) for one in kernels}
    source = f'SOURCE = r"""{select_prelude(body)}\n{body}"""\n'
    declared = "\n".join(
        f"    KERNELS.{name}.argtypes, KERNELS.{name}.restype = [ctypes.c_void_p] * {count}, None"
        for name, count in counts.items()
    )
    functions = "\n\n".join(map(_emit_cpp_function, kernels))
    compile_source = COMPILE_TEMPLATE.format(flags=" ".join(FLAGS), declared=declared).lstrip()
    return f"{source}\n{compile_source}\n\n{functions}"


def emit_triton(kernels: Sequence[RegionKernel]) -> str:
    """Generate Python with Triton kernels and a function for each region: tensors in, new tensors out.

    Raises:
        Unsupported: a step is not supported by the Triton backend.
    """
    printed = [print_region(kernel.region, kernel.config) for kernel in kernels]
    helpers = dict.fromkeys(helper for one in printed for helper in one.helpers)
    functions = [_emit_triton_function(kernel, one) for kernel, one in zip(kernels, printed, strict=True)]
    launches = any(one.kernel_names for one in printed)
    return "\n\n".join([*([LAUNCHER_TEMPLATE] if launches else []), *helpers, *functions])


def emit_torch_compile(kernel: RegionKernel) -> str:
    """Generate the plain torch function of a region and its compilation by torch.compile."""
    name = kernel.region.name
    imports = "".join(
        f"from {module} import {used}\n"
        for used, module in IMPORT_MODULES.items()
        if re.search(rf"\b{used}\b", kernel.torch_source)
    )
    return f"{imports}\n{kernel.torch_source}\n\n\n{name} = torch.compile({name}_plain, dynamic=False)\n".lstrip()


def _emit_triton_function(kernel: RegionKernel, printed: TritonSource) -> str:
    """The kernels of a region, their launcher, and the function that allocates what they write."""
    if printed.launcher_name in ("", kernel.region.name):
        return "\n\n".join(filter(None, [printed.kernels, printed.launcher]))
    inputs, outputs = kernel.region.reads, kernel.region.writes
    allocations = _allocate_outputs(kernel, "cuda")
    call = wrap_call(f"{printed.launcher_name}({', '.join([*(printed.launcher_reads or inputs), *outputs])})")
    function = emit_function(kernel.region, inputs, [*printed.setup, *allocations, call, emit_return(outputs)])
    return "\n\n".join([printed.kernels, printed.launcher, function])


def _emit_cpp_function(kernel: RegionKernel) -> str:
    region = kernel.region
    inputs, outputs = region.reads, region.writes
    allocations = _allocate_outputs(kernel, "cpu")
    pointers = ", ".join(f"{name}.data_ptr()" for name in (*inputs, *outputs))
    call = wrap_call(f"KERNELS.{region.name}({pointers})")
    return emit_function(region, inputs, [*allocations, call, emit_return(outputs)])


def emit_function(region: AnyRegion, inputs: Sequence[str], body: Sequence[str]) -> str:
    """Generate a function with the region's name; its docstring is the region's summary."""
    head = wrap_call(f"def {region.name}({', '.join(inputs)}):")
    return "\n".join([head, *(textwrap.indent(line, "    ") for line in (f'"""{summarize(region)}."""', *body))]) + "\n"


def summarize(region: AnyRegion) -> str:
    """List a region's steps and size: `add, mul, relu; 16,777,216 elements` or `exp, sum, div; 4,096 rows of 1,000`."""
    names = [step.op for step in region.steps if step.op not in ("cast", "constant", "index")]
    shown = ", ".join(names if len(names) <= 6 else [*names[:3], "...", *names[-2:]])
    shown = shown or "copy"
    size = f"{region.num_rows:,} rows of {region.row_size:,}" if region.row else f"{region.num_rows:,} elements"
    return f"{shown}; {size}"


def emit_return(outputs: Sequence[str]) -> str:
    """Generate the return statement of a region's function."""
    return f"return {', '.join(outputs)}"


def _allocate_outputs(kernel: RegionKernel, device: str) -> list[str]:
    """Lines that allocate the tensors it writes, each once."""
    stores = {store.buffer: store for store in kernel.region.stores}
    input_dtypes = {load.buffer: load.dtype for load in kernel.region.loads}
    return [
        f"{name} = {kernel.in_place.get(name) or _allocate_output(store, input_dtypes, device)}"
        for name, store in stores.items()
    ]


def _allocate_output(store: Store, input_dtypes: Mapping[str, str], device: str) -> str:
    """An allocation like an input, since torch's default dtype and device may differ when it runs."""
    layout, dtype = f"{store.shape}, {store.shape_strides}", f"dtype=torch.{store.dtype}"
    if not input_dtypes:
        return f'torch.empty_strided({layout}, {dtype}, device="{device}")'
    same_dtype = next((name for name, input_dtype in input_dtypes.items() if input_dtype == store.dtype), None)
    like, option = same_dtype or next(iter(input_dtypes)), "" if same_dtype else f", {dtype}"
    call = f"empty_on_device_of({like}, " if device == "cuda" else f"{like}.new_empty_strided("
    return f"{call}{layout}{option})"


def wrap_call(line: str, width: int = WIDTH) -> str:
    """Wrap the arguments of a call or signature that is longer than `width` columns."""
    if len(line) <= width or "(" not in line:
        return line
    head, _, rest = line.partition("(")
    inside, _, tail = rest.rpartition(")")
    filled = textwrap.fill(inside, width - 4, break_long_words=False, break_on_hyphens=False)
    return f"{head}(\n{textwrap.indent(filled, '    ')}\n){tail}"


def load(
    text: str, names: Mapping[str, Any] = MappingProxyType({}), lines: Mapping[str, int] = MappingProxyType({})
) -> ModuleType:
    """Import generated source as a module.

    The source is written to the cache folder, because Triton reads the source file of its kernels. The key of a kernel
    in Triton's cache has its line in the file: here all kernels have the same, so that they are found in every file.

    Args:
        names: globals that the module has before it runs.
        lines: kernels that have a line: see `kernel_lines`.
    Raises:
        RuntimeWarning: the kernels do not compile.
    """
    path = cache_dir("generated") / f"generated_{digest(text)}.py"
    if not path.exists():
        write_atomic(path, text.encode())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        spec.loader.exec_module(module)
    for name, value in vars(module).items():
        if hasattr(value, "starting_line_number"):
            value.starting_line_number = lines.get(name, 1)
    return module


def kernel_lines(text: str) -> dict[str, int]:
    """Return the first line of each decorated function of a source text."""
    functions = [one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef) and one.decorator_list]
    return {one.name: one.decorator_list[0].lineno for one in functions}
