"""Candidates in CUDA C++: compiled by NVRTC on a GPU, run unchanged by the emulator on a CPU.

Numbers are passed as the type of the kernel's own parameter.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelwright.core.errors import CandidateError, DeviceError, UsageError
from kernelwright.problems.compiled import CompiledProgram, check_reads_parameters
from kernelwright.problems.gpu_requirement import find_gpu_requirement
from kernelwright.problems.header import Header, LaunchDeclaration, parse_header
from kernelwright.problems.plan import InvocationPlanner, ResolvedLaunch, ResolvedMap
from kernelwright.problems.problem import Candidate, Problem
from kernelwright.problems.prototype import Parameter, find_extern_c_functions, find_prototype
from kernelwright.toolchain.cuda.driver import MAP_PITCH_BYTES, tensor_map
from kernelwright.toolchain.emulator.tensor_map import emulated_tensor_map

FLOAT_TYPES = ("float", "double")
INTEGER_BITS = {"int": 32, "int32_t": 32, "int64_t": 64, "long": 64, "longlong": 64, "size_t": 64, "unsigned": 32}
EMULATED_SMS = 3
MATH_H_DEFINES = {"INFINITY": "__int_as_float(0x7f800000)", "NAN": "__int_as_float(0x7fffffff)"}
"""Macros that nvcc defines without an include and NVRTC does not."""
KernelLauncher = Callable[..., None]
KernelCompiler = Callable[[str, str, Path], KernelLauncher]


class CudaProgram(CompiledProgram):
    """Kernels run in order, each with the grid that its header declares for the inputs.

    Attributes:
        kernels: launchers by kernel name, called with grid, block, arguments and bytes of shared memory; set once the
            header fits the example inputs.
    """

    def __init__(self, problem: Problem, header: Header, planner: InvocationPlanner, device: str) -> None:
        self.device = device
        super().__init__(problem, header, planner)
        self.kernels: dict[str, KernelLauncher] = {}
        if device == "cuda":
            self.to(device)

    def launch(self, call: ResolvedLaunch, arguments: list[Any]) -> None:
        """Launch one kernel; an empty grid launches nothing."""
        grid, block = call.sizes["grid"], call.sizes["block"]
        if 0 in grid:
            return  # nothing to compute
        (shared_bytes,) = call.sizes.get("shared", (0,))
        cluster = {"cluster": call.sizes["cluster"]} if "cluster" in call.sizes else {}
        try:
            self.kernels[call.entry](grid, block, arguments, shared_bytes, **cluster)
        except UsageError as error:
            if error.where:
                raise
            launch = next(one for one in self._header.launches if one.entry == call.entry)
            size_lines = [line for kind, line in launch.size_lines.items() if kind in error.message]
            self._header.fail(error.message, size_lines[0] if size_lines else launch.line)

    def encode_map(self, planned: ResolvedMap, tensor: torch.Tensor) -> Any:
        """The tensor map of a tensor; on a GPU cached, since encoding one takes microseconds."""
        dtype, address = str(tensor.dtype).removeprefix("torch."), tensor.data_ptr()
        if address % MAP_PITCH_BYTES:
            message = f"{planned.tensor} begins at {address:#x}: TMA addresses multiples of {MAP_PITCH_BYTES} bytes"
            self._header.fail(message, planned.line)
        make_map = tensor_map if self.device == "cuda" else emulated_tensor_map
        return make_map(address, dtype, tuple(tensor.shape), tensor.stride(), planned.box, planned.swizzle)


def build_cuda_program(
    path: Path, name: str, problem: Problem, device: str, compile_kernel: KernelCompiler
) -> CudaProgram:
    """The program of a CUDA source.

    Args:
        compile_kernel: called with the source, the name of a kernel in it, and its path; returns its launcher.
    """
    source = path.read_text(encoding="utf-8", errors="replace")
    header = parse_header(source, str(path))
    if name and len(header.launches) == 1:
        header.launches[0].entry = name
    for launch in header.launches:
        _check_launch(header, launch, source)
    check_reads_parameters(header, problem)
    prototypes = [find_prototype(source, launch.entry) for launch in header.launches]
    planner = InvocationPlanner(header, prototypes, convert_scalar, {"sms": _sm_count(device)})
    program = CudaProgram(problem, header, planner, device)
    if header.maps and device == "cuda":
        _require_tma(path)
    program.kernels = {launch.entry: compile_kernel(source, launch.entry, path) for launch in header.launches}
    return program


class CudaLoader:
    """Compiles `.cu` candidates for the GPU or the emulator."""

    def load(self, path: Path, name: str, problem: Problem, device: str) -> Candidate:
        """Compile the file and check its header; see `SourceLoader.load`."""
        if device not in KERNEL_COMPILERS:
            raise CandidateError(f"{path} runs on {' or '.join(KERNEL_COMPILERS)}, not on {device}", where=str(path))
        program = build_cuda_program(path, name, problem, device, KERNEL_COMPILERS[device])
        notes = () if device == "cuda" else ("emulated on the CPU: correctness is checked, times are meaningless",)
        return Candidate(path.stem, program, str(path), "cuda", notes)


def convert_scalar(number: int | float, parameter: Parameter | None) -> Any:
    """The number as the parameter's Python type, or a string with the reason why it is not accepted."""
    if parameter is None:
        return number
    if parameter.pointer:
        return f"is passed as a number, but the parameter is `{parameter.text}`"
    if parameter.is_tensor_map:
        return f"is passed as a number, but the parameter is `{parameter.text}`: declare a `// kw: map`"
    if parameter.type in FLOAT_TYPES:
        return float(number)
    if isinstance(number, float):
        return f"is passed as a float, but the parameter is `{parameter.text}`"
    bits = INTEGER_BITS.get(parameter.type, 64)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise OverflowError(f"does not fit in `{parameter.text}`")
    return number


def _check_launch(header: Header, launch: LaunchDeclaration, source: str) -> None:
    if launch.entry not in (exported := find_extern_c_functions(source)):
        names = ", ".join(exported) or "nothing"
        header.fail(f'no extern "C" kernel {launch.entry}; the source exports {names}', launch.line)
    for kind in ("grid", "block"):
        if not 1 <= len(launch.launch_sizes.get(kind, ())) <= 3:
            header.fail(f"`// kw: {kind} ...` of {launch.entry} needs one to three numbers", launch.line)


def _require_tma(path: Path) -> None:
    """Reject a source with tensor maps on a GPU without its instructions."""
    requirement = find_gpu_requirement([path])
    if not requirement.is_met():
        message, command = f"{path} needs {requirement.text}", shlex.join(["kw", "sass", str(path)])
        raise DeviceError(message, where=str(path), next=command)


def _sm_count(device: str) -> int:
    """Number of multiprocessors of the device, or of the emulator."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device == "cuda" else EMULATED_SMS


def _compile_for_gpu(source: str, entry: str, path: Path) -> KernelLauncher:
    from kernelwright.toolchain.cuda import compile_cubin
    from kernelwright.toolchain.cuda.launcher import CudaKernel, current_arch

    cubin = compile_cubin(source, current_arch(), include_dirs=[path.parent], defines=MATH_H_DEFINES, name=str(path))
    return CudaKernel(cubin, entry)


def _compile_for_emulator(source: str, entry: str, path: Path) -> KernelLauncher:
    from kernelwright.toolchain.emulator import EmulatedKernel

    return EmulatedKernel(source, entry, path=str(path))


KERNEL_COMPILERS: dict[str, KernelCompiler] = {"cuda": _compile_for_gpu, "cpu": _compile_for_emulator}


LOADER = CudaLoader()
