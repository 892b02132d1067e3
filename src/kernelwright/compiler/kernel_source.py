"""Kernels as Python text that needs torch and a compiler, and nothing of this package: what a person will own."""

from __future__ import annotations

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
from kernelwright.compiler.regions.region import Region, Store
from kernelwright.compiler.triton.printer import LAUNCHER_TEMPLATE, print_triton
from kernelwright.core.cache import cache_dir, digest, write_atomic
from kernelwright.toolchain.cpp import FLAGS

WIDTH = 100
IMPORT_MODULES = {"device": "torch", "inf": "math", "nan": "math"}
"""Where words of a printed graph come from."""
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


def compiled(source: str) -> ctypes.CDLL:
    """The library of a C++ source, compiled once on each machine."""
    folder = Path(os.environ.get("KERNELWRIGHT_CACHE") or Path.home() / ".cache" / "kernelwright") / "owned"
    key = hashlib.sha256(" ".join([source, *FLAGS, platform.node()]).encode()).hexdigest()[:24]
    library = folder / f"{{key}}.so"
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "kernels.so"
            command = [os.environ.get("CXX", "c++"), *FLAGS, "-x", "c++", "-", "-o", str(made)]
            done = subprocess.run(command, input=source, text=True, capture_output=True)
            if done.returncode:
                raise RuntimeError(done.stderr)
            made.replace(library)
    return ctypes.CDLL(str(library))


try:
    KERNELS = compiled(SOURCE)
{declared}
except (OSError, RuntimeError) as fault:
    KERNELS = None
    warnings.warn(f"the program runs as it was, its kernels do not compile here: {{fault}}", RuntimeWarning)
'''
"""Whoever wants to know that they compile makes an error of the warning."""


class RegionKernel(NamedTuple):
    """One way to compute a region: a generator's choice, or plain torch code for torch.compile; `in_place` names the
    inputs into which some of its results are written."""

    region: Region
    config: Any
    torch_source: str = ""
    in_place: Mapping[str, str] = MappingProxyType({})


def emit_cpp(kernels: Sequence[RegionKernel]) -> str:
    """Python that defines a function for each region: tensors in, new tensors out.

    Raises:
        Misfit: a step that C++ has no form for.
    """
    body = "\n".join(print_cpp(kernel.region, kernel.config, kernel.in_place) for kernel in kernels)
    counts = {one.region.name: len(one.region.reads) + len(one.region.writes) for one in kernels}
    source = f'SOURCE = r"""{select_prelude(body)}\n{body}"""\n'
    declared = "\n".join(
        f"    KERNELS.{name}.argtypes, KERNELS.{name}.restype = [ctypes.c_void_p] * {count}, None"
        for name, count in counts.items()
    )
    functions = "\n\n".join(map(_emit_cpp_function, kernels))
    compile_it = COMPILE_TEMPLATE.format(flags=" ".join(FLAGS), declared=declared).lstrip()
    return f"{source}\n{compile_it}\n\n{functions}"


def emit_triton(kernels: Sequence[RegionKernel]) -> str:
    """The same in Triton.

    Raises:
        Misfit: a step that Triton has no form for.
    """
    printed = [print_triton(kernel.region, kernel.config) for kernel in kernels]
    helpers = dict.fromkeys(helper for one in printed for helper in one.helpers)
    functions = [
        "\n\n".join([one.kernels, one.launcher, _emit_triton_function(kernel, one.launcher_name)])
        for one, kernel in zip(printed, kernels, strict=True)
    ]
    return "\n\n".join([LAUNCHER_TEMPLATE, *helpers, *functions])


def emit_torch_compile(kernel: RegionKernel) -> str:
    """Plain torch code that torch.compile makes a kernel of wherever the file runs."""
    name = kernel.region.name
    imports = "".join(
        f"from {home} import {word}\n"
        for word, home in IMPORT_MODULES.items()
        if re.search(rf"\b{word}\b", kernel.torch_source)
    )
    return f"{imports}\n{kernel.torch_source}\n\n\n{name} = torch.compile({name}_plain, dynamic=False)\n".lstrip()


def _emit_triton_function(kernel: RegionKernel, launch: str) -> str:
    inputs, outputs = kernel.region.reads, kernel.region.writes
    made = _allocate_outputs(kernel, "cuda")
    called = wrap_call(f"{launch}({', '.join([*inputs, *outputs])})")
    return emit_function(kernel.region, inputs, [*made, called, emit_return(outputs)])


def _emit_cpp_function(kernel: RegionKernel) -> str:
    region = kernel.region
    inputs, outputs = region.reads, region.writes
    made = _allocate_outputs(kernel, "cpu")
    pointers = ", ".join(f"{name}.data_ptr()" for name in (*inputs, *outputs))
    return emit_function(region, inputs, [*made, wrap_call(f"KERNELS.{region.name}({pointers})"), emit_return(outputs)])


def emit_function(region: Region, inputs: Sequence[str], body: Sequence[str]) -> str:
    """A function of the region's name with its first line of text as the docstring."""
    head = wrap_call(f"def {region.name}({', '.join(inputs)}):")
    return "\n".join([head, *(textwrap.indent(line, "    ") for line in (f'"""{summarize(region)}."""', *body))]) + "\n"


def summarize(region: Region) -> str:
    """`relu of add, mul, add: 16,777,216 elements` or `div of exp, sum over rows: 4,096 rows of 1,000`."""
    names = [step.op for step in region.steps if step.op not in ("cast", "constant", "index")]
    shown = ", ".join(names if len(names) <= 6 else [*names[:3], "...", *names[-2:]])
    shown = shown or "copy"
    size = f"{region.num_rows:,} rows of {region.row_size:,}" if region.row else f"{region.num_rows:,} elements"
    return f"{shown}; {size}"


def emit_return(outputs: Sequence[str]) -> str:
    return f"return {', '.join(outputs)}"


def _allocate_outputs(kernel: RegionKernel, device: str) -> list[str]:
    """Lines that make the tensors it writes, each once."""
    stores = {store.buffer: store for store in kernel.region.stores}
    given = {load.buffer: load.dtype for load in kernel.region.loads}
    return [
        f"{name} = {kernel.in_place.get(name) or _allocate_output(store, given, device)}"
        for name, store in stores.items()
    ]


def _allocate_output(store: Store, given: Mapping[str, str], device: str) -> str:
    """Memory like that of something it is given: torch's default dtype and device may be others when it runs."""
    layout, dtype = f"{store.shape}, {store.shape_strides}", f"dtype=torch.{store.dtype}"
    if not given:
        return f'torch.empty_strided({layout}, {dtype}, device="{device}")'
    like = next((name for name, known in given.items() if known == store.dtype), None)
    beside, asked = like or next(iter(given)), "" if like else f", {dtype}"
    call = f"empty_on_device_of({beside}, " if device == "cuda" else f"{beside}.new_empty_strided("
    return f"{call}{layout}{asked})"


def wrap_call(line: str, width: int = WIDTH) -> str:
    """A call or a signature, its arguments on lines of their own where it is too long."""
    if len(line) <= width or "(" not in line:
        return line
    head, _, rest = line.partition("(")
    inside, _, tail = rest.rpartition(")")
    filled = textwrap.fill(inside, width - 4, break_long_words=False, break_on_hyphens=False)
    return f"{head}(\n{textwrap.indent(filled, '    ')}\n){tail}"


def load(text: str, names: Mapping[str, Any] = MappingProxyType({})) -> ModuleType:
    """The module that such a text is, with some names given; kept in the cache, because Triton reads its kernels'
    source.

    Raises:
        RuntimeWarning: its kernels do not compile.
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
    return module
